# Imported targets for what tools/setup installed. Names here are the only ones folders use:
#   Debian: Boost::filesystem, Boost::headers (Boost.DLL), spdlog::spdlog, GTest::gtest, GTest::gmock,
#           GTest::gtest_main, benchmark::benchmark, CLI11::CLI11, nlohmann_json::nlohmann_json,
#           tomlplusplus::tomlplusplus, backplane::highway, Threads::Threads
#   PyPI:   backplane::onnx (ONNX's C++ library with its protobuf classes), backplane::onednn

set(BACKPLANE_DEPS_DIR "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH
    "What tools/setup built: onnx/, onednn/, venv/")
if(NOT EXISTS "${BACKPLANE_DEPS_DIR}/onnx/lib/libonnx.a")
  message(FATAL_ERROR "${BACKPLANE_DEPS_DIR}/onnx is not there: run tools/setup first, or point "
                      "BACKPLANE_DEPS_DIR to the .deps folder of a tree in which it ran.")
endif()

find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

# ONNX is built with protobuf-lite: its messages then carry no descriptors, so a process that also
# holds another copy of ONNX's messages (a Python interpreter with the onnx package, for one) has
# no second registration of "onnx.ModelProto" in protobuf's global pool, which aborts the process.
# Nothing here needs reflection or text format. See cmake/README.md.
add_library(backplane_onnx INTERFACE)
add_library(backplane::onnx ALIAS backplane_onnx)
target_include_directories(backplane_onnx SYSTEM INTERFACE "${BACKPLANE_DEPS_DIR}/onnx/include")
target_compile_definitions(backplane_onnx INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx ONNX_USE_LITE_PROTO)
target_link_libraries(backplane_onnx INTERFACE "${BACKPLANE_DEPS_DIR}/onnx/lib/libonnx.a"
                                               protobuf::libprotobuf-lite)

add_library(backplane_highway INTERFACE)
add_library(backplane::highway ALIAS backplane_highway)
find_library(BACKPLANE_HIGHWAY_LIBRARY NAMES hwy REQUIRED)
target_link_libraries(backplane_highway INTERFACE "${BACKPLANE_HIGHWAY_LIBRARY}")

# oneDNN's wheel holds a shared library only. It lies in lib/backplane/deps/, in the build tree as
# a link and in an installed one as a file; backplane_plugin() sets the run path that finds it.
# The wheel is for x86-64: elsewhere the target is absent, and a plugin asks with if(TARGET ...).
set(BACKPLANE_ONEDNN_LIBRARY "${BACKPLANE_DEPS_DIR}/onednn/lib/libdnnl.so.3")
if(EXISTS "${BACKPLANE_ONEDNN_LIBRARY}")
  file(MAKE_DIRECTORY "${BACKPLANE_DEPS_LIB_DIR}")
  file(CREATE_LINK "${BACKPLANE_ONEDNN_LIBRARY}" "${BACKPLANE_DEPS_LIB_DIR}/libdnnl.so.3"
       SYMBOLIC COPY_ON_ERROR)
  add_library(backplane_onednn SHARED IMPORTED GLOBAL)
  add_library(backplane::onednn ALIAS backplane_onednn)
  set_target_properties(backplane_onednn PROPERTIES
    IMPORTED_LOCATION "${BACKPLANE_DEPS_LIB_DIR}/libdnnl.so.3"
    IMPORTED_SONAME libdnnl.so.3
    INTERFACE_INCLUDE_DIRECTORIES "${BACKPLANE_DEPS_DIR}/onednn/include")
endif()
