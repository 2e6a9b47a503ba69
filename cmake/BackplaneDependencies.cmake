# Imported targets for what tools/setup installed. Names here are the only ones folders use:
#   Debian: Boost::filesystem, Boost::headers (Boost.DLL), spdlog::spdlog, GTest::gtest, GTest::gmock,
#           GTest::gtest_main, benchmark::benchmark, CLI11::CLI11, nlohmann_json::nlohmann_json,
#           tomlplusplus::tomlplusplus, backplane::highway, Threads::Threads
#   PyPI:   backplane::onnx (ONNX's C++ library with its protobuf classes)

set(BACKPLANE_DEPS_DIR "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH
    "What tools/setup built: onnx/, venv/")
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
# Its headers suffice, but for their assertions in debug builds.
target_link_libraries(backplane_highway INTERFACE -Wl,--as-needed "${BACKPLANE_HIGHWAY_LIBRARY}" -Wl,--no-as-needed)
