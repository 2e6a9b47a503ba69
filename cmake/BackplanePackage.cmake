# Install rules that belong to no single folder, and the CMake package. Components: core (program,
# host library, shared libraries of plugins), devel (headers, CMake files), python (lib/python/backplane), plugin_<name>,
# custom_ops_<name>: each of these two is one file, which an installation gets and loses without the others.
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
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION share/doc/backplane COMPONENT core)
