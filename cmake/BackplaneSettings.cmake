# Language level, warnings, sanitizers and the output layout of every target in this tree.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# The host plans once and runs often, so -O2 serves it; backplane_plugin() gives kernels -O3.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
# Debug serves the sanitizers: lines in their stacks are enough, and without optimisation the tree
# compiles in half the time.
set(BACKPLANE_DEBUG_FLAGS "-O0 -g1" CACHE STRING
    "Optimisation and debug information of Debug builds: -O1 for tests that compute much, -g for a debugger")
set(CMAKE_CXX_FLAGS_DEBUG "${BACKPLANE_DEBUG_FLAGS} -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_DEBUG "${BACKPLANE_DEBUG_FLAGS} -fno-omit-frame-pointer")

option(BACKPLANE_WERROR "Treat warnings as errors" OFF)
set(BACKPLANE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them (empty: none)")

# The installed tree looks the same, so a run path relative to the file serves both:
#   bin/backplane   lib/libbackplane.so.1
#   lib/backplane/plugins/*.so   lib/backplane/custom_ops/*.so
# Shared libraries that a plugin brings along lie in lib/backplane/deps/, outside of the folder that
# the host searches; a plugin's run path leads there.
set(BACKPLANE_BIN_DIR "${PROJECT_BINARY_DIR}/bin")
set(BACKPLANE_LIB_DIR "${PROJECT_BINARY_DIR}/lib")
set(BACKPLANE_PLUGIN_DIR "${BACKPLANE_LIB_DIR}/backplane/plugins")
set(BACKPLANE_CUSTOM_OPS_DIR "${BACKPLANE_LIB_DIR}/backplane/custom_ops")
set(BACKPLANE_TEST_DIR "${PROJECT_BINARY_DIR}/tests")  # beside lib/, like bin/
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "")

# Everything that is installed, and nothing else: what tools/quickstart builds.
add_custom_target(backplane_product)

# Applies warnings and sanitizers to one target. Every function of this folder that makes a target
# calls it, so no CMakeLists.txt needs flags of its own.
function(backplane_target_defaults target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
    $<$<BOOL:${BACKPLANE_WERROR}>:-Werror>)
  if(CMAKE_UNITY_BUILD)
    # Every source is an included file then, which the first warns of; the second errs on more code in sight.
    target_compile_options(${target} PRIVATE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
      $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>
      # GCC looks for memory to use again from 128 MB on, and then often. A batch takes little more than 1 GB without.
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=1048576>)
  endif()
  if(BACKPLANE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BACKPLANE_SANITIZE} -fno-sanitize-recover=all
      $<$<CXX_COMPILER_ID:Clang>:-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/code_of_others.txt>)
    target_compile_definitions(${target} PRIVATE BACKPLANE_SANITIZED=1)
    if(BACKPLANE_SANITIZE STREQUAL "thread")
      target_compile_definitions(${target} PRIVATE BACKPLANE_SANITIZED_THREAD=1)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${BACKPLANE_SANITIZE})
    # A program in C, too, brings the run-time library that its libraries in C++ need.
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  else()
    # A sanitizer's run-time library is found in the executable, which -z defs would refuse.
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  target_link_options(${target} PRIVATE -Wl,--as-needed)
endfunction()
