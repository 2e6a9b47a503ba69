# Tests. A label says where a test runs (tools/test): everything runs in release; `unit`, `abi` and
# `fault` also under the address and undefined-behaviour sanitizers; `tsan` under the thread
# sanitizer; `tools/test --full` runs all under each, but those labelled `release`: tests by the clock, and programs under
# a checker of their own; `checks` are the scripts of tools/checks. Target backplane_tests_<label> builds what
# the tests of a label need, so that a sanitized build need not hold everything.

set(BACKPLANE_TEST_PATIENCE "1" CACHE STRING
    "What the time limit of each test is multiplied by: more than 1 for BACKPLANE_TEST_FULL=1 and slow machines")
set(BACKPLANE_TEST_RESULTS_DIR "${PROJECT_BINARY_DIR}/test_results")
set(BACKPLANE_VENV_PYTHON "${BACKPLANE_DEPS_DIR}/venv/bin/python")
option(BACKPLANE_PRECOMPILED_TEST_HEADERS
       "Headers of GoogleTest and others are compiled once for all tests: quicker for all, and hides that one does not include them" OFF)
foreach(label IN ITEMS unit abi fault tsan)
  add_custom_target(backplane_tests_${label})
endforeach()

# backplane_test(NAME unit_graph SOURCES ... [DEPS graph ...] [LIBS ...] [LABELS unit ...]
#                [TIMEOUT seconds] [ARGS ...] [NEEDS target ...] [NO_MAIN])
# One GoogleTest program, one ctest entry (a process per case would cost more than most cases do);
# its own report in test_results/ gives tools/test the number of cases. DEPS are folders of core/;
# NEEDS are targets that must be built first, such as plugins that it loads. Compiled with
# BACKPLANE_TEST_BUILD_DIR, BACKPLANE_TEST_SOURCE_DIR, BACKPLANE_TEST_PLUGIN_DIR and
# BACKPLANE_TEST_CUSTOM_OPS_DIR as strings.
function(backplane_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_MAIN" "NAME;TIMEOUT"
                        "SOURCES;DEPS;LIBS;LABELS;ARGS;NEEDS")
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_test: NAME and SOURCES are needed; not known: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target backplane_test_${arg_NAME})
  backplane_sources(sources ${arg_SOURCES})
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE
    BACKPLANE_TEST_BUILD_DIR="${PROJECT_BINARY_DIR}"
    BACKPLANE_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    BACKPLANE_TEST_PLUGIN_DIR="${BACKPLANE_PLUGIN_DIR}"
    BACKPLANE_TEST_CUSTOM_OPS_DIR="${BACKPLANE_CUSTOM_OPS_DIR}")
  list(TRANSFORM arg_DEPS PREPEND backplane_core_)
  set(main GTest::gtest_main)
  if(arg_NO_MAIN)
    set(main)
  endif()
  target_link_libraries(${target} PRIVATE ${arg_DEPS} ${arg_LIBS} GTest::gmock GTest::gtest ${main})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${arg_NAME} RUNTIME_OUTPUT_DIRECTORY "${BACKPLANE_TEST_DIR}"
    INSTALL_RPATH "$ORIGIN/../lib")
  _backplane_test_flags(${target})
  if(BACKPLANE_PRECOMPILED_TEST_HEADERS AND NOT "${sources}" MATCHES "[.]c(;|$)")
    _backplane_precompiled_headers()
    target_precompile_headers(${target} REUSE_FROM backplane_test_headers)
  endif()
  if(arg_NEEDS)
    add_dependencies(${target} ${arg_NEEDS})
  endif()
  add_test(NAME ${arg_NAME}
           COMMAND ${target} "--gtest_output=json:${BACKPLANE_TEST_RESULTS_DIR}/${arg_NAME}.json"
                   ${arg_ARGS}
           WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  _backplane_test_properties(${arg_NAME} "${arg_LABELS}" "${arg_TIMEOUT}" ${target} ${arg_NEEDS})
endfunction()

function(_backplane_test_flags target)
  backplane_target_defaults(${target})
  # Tests are compiled more often than they run; what they test has its own flags.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  if(BACKPLANE_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# An executable, since compilers take headers of code for a library for none of a program.
function(_backplane_precompiled_headers)
  if(TARGET backplane_test_headers)
    return()
  endif()
  set(source "${PROJECT_BINARY_DIR}/test_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
  add_executable(backplane_test_headers EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(backplane_test_headers PRIVATE GTest::gmock GTest::gtest)
  # Each takes a unit longer to compile than to read.
  target_precompile_headers(backplane_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm> <array> <atomic> <chrono>
    <cmath> <cstdint> <cstdlib> <cstring> <filesystem> <fstream> <functional> <limits> <map>
    <memory> <numeric> <optional> <random> <set> <span> <sstream> <stdexcept> <string> <thread>
    <utility> <vector>)
  set_target_properties(backplane_test_headers PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${BACKPLANE_TEST_DIR}")
  _backplane_test_flags(backplane_test_headers)
endfunction()

# backplane_test_again(NAME ops_x_groups OF ops_x [ARGS ...] [LABELS ...] [NEEDS target ...] [ENVIRONMENT change ...])
# The program of another backplane_test, run with other arguments and with changes to its environment.
function(backplane_test_again)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;OF" "ARGS;LABELS;NEEDS;ENVIRONMENT")
  if(NOT arg_NAME OR NOT arg_OF OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_test_again: NAME and OF are needed; not known: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_test(NAME ${arg_NAME}
           COMMAND backplane_test_${arg_OF}
                   "--gtest_output=json:${BACKPLANE_TEST_RESULTS_DIR}/${arg_NAME}.json" ${arg_ARGS}
           WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  _backplane_test_properties(${arg_NAME} "${arg_LABELS}" "" backplane_test_${arg_OF} ${arg_NEEDS})
  set_tests_properties(${arg_NAME} PROPERTIES ENVIRONMENT_MODIFICATION "${arg_ENVIRONMENT}")
endfunction()

# backplane_script_test(NAME cli_run SCRIPT run_test.py [ARGS ...] [LABELS ...] [TIMEOUT seconds]
#                       [NEEDS target ...] [SYSTEM_PYTHON] [SERIAL])
# A Python program, run by the interpreter of .deps/venv (numpy, onnx, onnxruntime, scikit-learn) or
# by the system's. It fails by its exit code; 77 means skipped, with the reason printed. A last line
# `N passed, N failed, N skipped` on standard output gives tools/test the number of cases. Finds
# BACKPLANE_BUILD_DIR and BACKPLANE_SOURCE_DIR in its environment.
function(backplane_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SYSTEM_PYTHON;SERIAL" "NAME;SCRIPT;TIMEOUT"
                        "ARGS;LABELS;NEEDS")
  if(NOT arg_NAME OR NOT arg_SCRIPT OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_script_test: NAME and SCRIPT are needed; not known: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  cmake_path(ABSOLUTE_PATH arg_SCRIPT BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set(python "${BACKPLANE_VENV_PYTHON}")
  if(arg_SYSTEM_PYTHON)
    set(python python3)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${python} "${arg_SCRIPT}" ${arg_ARGS}
           WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  _backplane_test_properties(${arg_NAME} "${arg_LABELS}" "${arg_TIMEOUT}" ${arg_NEEDS})
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77)
  # NumPy's library of products lets its threads wait for each other at full speed, beside other tests.
  set_property(TEST ${arg_NAME} APPEND PROPERTY ENVIRONMENT OPENBLAS_NUM_THREADS=1)
  if(arg_SERIAL)
    set_tests_properties(${arg_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(_backplane_test_properties name labels timeout)
  if(NOT timeout)
    set(timeout 300)
  endif()
  math(EXPR timeout "${BACKPLANE_TEST_PATIENCE} * ${timeout}")
  if(BACKPLANE_SANITIZE)
    math(EXPR timeout "4 * ${timeout}")
  endif()
  set(environment "BACKPLANE_BUILD_DIR=${PROJECT_BINARY_DIR}"
                  "BACKPLANE_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "PYTHONDONTWRITEBYTECODE=1")
  if(BACKPLANE_SANITIZE)
    # detect_container_overflow: ONNX's and protobuf's libraries are built without the sanitizer,
    # so a std::vector that they grow and this tree reads carries no annotations, or stale ones.
    # intercept_tls_get_addr: up to LLVM 16 it takes some blocks of thread-local memory for those of an
    # older glibc, and the search for leaks then crashes by chance.
    list(APPEND environment
      "ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=1:intercept_tls_get_addr=0:strict_string_checks=1:allocator_may_return_null=1"
      "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks_of_others.txt:print_suppressions=0"
      "UBSAN_OPTIONS=print_stacktrace=1"
      "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:history_size=4:allocator_may_return_null=1")
  endif()
  foreach(label IN LISTS labels)
    if(NOT TARGET backplane_tests_${label})
      add_custom_target(backplane_tests_${label})
    endif()
    if(ARGN)
      add_dependencies(backplane_tests_${label} ${ARGN})
    endif()
  endforeach()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
                       ENVIRONMENT "${environment}")
endfunction()
