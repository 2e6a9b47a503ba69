# Install rules that belong to no single folder, and the CMake package. Components: core (program,
# host library, shared libraries of plugins), devel (headers, CMake files), python (lib/python/backplane), plugin_<name>,
# custom_ops_<name>: each of these two is one file, which an installation gets and loses without the others; plugin_cuda
# alone brings a second one, lib/backplane/deps/cuda_engine.so, which links CUDA's libraries and which the plugin opens.
#
# After `find_package(backplane)`: backplane::plugin_api (headers of the ABI and the SDK),
# backplane::backplane (the host library), backplane_plugin() and backplane_custom_ops().

include(CMakePackageConfigHelpers)
set(package_dir lib/cmake/backplane)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/backplaneConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/package/backplaneConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/backplaneConfigVersion.cmake"
  COMPATIBILITY SameMajorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/package/backplaneConfig.cmake"
    "${PROJECT_BINARY_DIR}/package/backplaneConfigVersion.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/BackplanePlugin.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/op_table.hpp.in"
    "${CMAKE_CURRENT_LIST_DIR}/op_table.cpp.in"
    "${CMAKE_CURRENT_LIST_DIR}/plugin_symbols.map"
  DESTINATION ${package_dir} COMPONENT devel)
install(EXPORT backplaneTargets NAMESPACE backplane:: DESTINATION ${package_dir} COMPONENT devel)

# The manual, and a project of examples that builds where it lies: programs, a provider in C++ and one in C, a library
# of operators.
set(doc_dir share/doc/backplane)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${doc_dir} COMPONENT core)
install(CODE "set(BACKPLANE_SOURCE [[${PROJECT_SOURCE_DIR}]])
set(BACKPLANE_WORK [[${PROJECT_BINARY_DIR}/package/manual]])" COMPONENT devel)
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/install_manual.cmake" COMPONENT devel)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tests/package/project/" DESTINATION ${doc_dir}/examples
        COMPONENT devel)
install(FILES "${PROJECT_SOURCE_DIR}/tests/fixtures/null_provider/null_provider.cpp"
        DESTINATION ${doc_dir}/examples RENAME my_provider.cpp COMPONENT devel)
install(FILES "${PROJECT_SOURCE_DIR}/custom_ops/windowed_mean/windowed_mean.cpp"
        DESTINATION ${doc_dir}/examples RENAME my_ops.cpp COMPONENT devel)
