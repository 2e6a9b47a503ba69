# How a provider and a custom-op library are built, in this tree and, after find_package(backplane),
# in anyone's. Both are shared objects that export one symbol, link the C++ SDK and never the host.
#
#   backplane_plugin(NAME cpu                  namespace backplane::cpu, file cpu.so
#                    SOURCES plugin.cpp ...
#                    [OPS_DIR ops]             one operator family per file, see below
#                    [LIBS ...]                vendor libraries, linked PRIVATE
#                    [INCLUDE_DIRS ...]
#                    [CXX_STANDARD 17]         default 20
#                    [OUTPUT_DIR dir]          default: plugins/ of the tree
#                    [NO_INSTALL])             for fixtures of tests
#   backplane_custom_ops(...)                  the same, in custom_ops/
#
# Makes target backplane_plugin_<NAME> (custom ops: backplane_custom_ops_<NAME>), a MODULE, and
# <target>_objects, the same object files for tests that look inside.
#
# OPS_DIR: every <dir>/<stem>.cpp defines `KernelList <stem>_kernels()` in the plugin's namespace.
# The generated op_table.hpp declares all_kernels(), which calls each of them in the order of the
# file names. A file without its function is a link error that names it; no list is kept by hand.

set(BACKPLANE_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")

function(backplane_plugin)
  _backplane_module(backplane_plugin plugins "${BACKPLANE_PLUGIN_DIR}" plugin_ ${ARGN})
endfunction()

function(backplane_custom_ops)
  _backplane_module(backplane_custom_ops custom_ops "${BACKPLANE_CUSTOM_OPS_DIR}" custom_ops_ ${ARGN})
endfunction()

function(_backplane_module prefix folder default_output component)
  cmake_parse_arguments(PARSE_ARGV 4 arg "NO_INSTALL" "NAME;OPS_DIR;OUTPUT_DIR;CXX_STANDARD"
                        "SOURCES;LIBS;INCLUDE_DIRS")
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${prefix}: NAME and SOURCES are needed; not known: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target ${prefix}_${arg_NAME})
  set(objects ${target}_objects)

  add_library(${objects} OBJECT ${arg_SOURCES})
  target_link_libraries(${objects} PUBLIC backplane::plugin_api ${arg_LIBS})
  target_include_directories(${objects} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" ${arg_INCLUDE_DIRS})
  if(NOT arg_NO_INSTALL)  # fixtures, with the -O2 of the tree, are compiled more often than they compute
    target_compile_options(${objects} PRIVATE $<$<CONFIG:Release>:-O3>)
  endif()
  set_target_properties(${objects} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  if(arg_CXX_STANDARD)
    set_target_properties(${objects} PROPERTIES CXX_STANDARD ${arg_CXX_STANDARD})
  elseif(NOT CMAKE_CXX_STANDARD)
    set_target_properties(${objects} PROPERTIES CXX_STANDARD 20)
  endif()
  if(arg_OPS_DIR)
    _backplane_op_table(${objects} ${arg_NAME} ${arg_OPS_DIR})
  endif()

  add_library(${target} MODULE $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(${target} PRIVATE ${objects})
  set(map "${BACKPLANE_CMAKE_DIR}/plugin_symbols.map")
  target_link_options(${target} PRIVATE "-Wl,--version-script=${map}")
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${arg_NAME} LINKER_LANGUAGE CXX LINK_DEPENDS "${map}"
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../deps")
  if(arg_OUTPUT_DIR)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${arg_OUTPUT_DIR}")
  elseif(default_output)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${default_output}")
  endif()

  if(COMMAND backplane_target_defaults)  # this tree's own warnings, sanitizers and include paths
    target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}")
    backplane_target_defaults(${objects})
    backplane_target_defaults(${target})
  else()
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  if(NOT arg_NO_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS ${target} LIBRARY DESTINATION "lib/backplane/${folder}"
            COMPONENT ${component}${arg_NAME})
    if(TARGET backplane_product)
      add_dependencies(backplane_product ${target})
    endif()
  endif()
endfunction()

function(_backplane_op_table objects name folder)
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp")
  list(SORT files)  # the same order on every machine
  set(BACKPLANE_NAME ${name})
  set(BACKPLANE_DECLARATIONS "")
  set(BACKPLANE_ROWS "")
  foreach(file IN LISTS files)
    cmake_path(GET file STEM stem)
    string(APPEND BACKPLANE_DECLARATIONS "KernelList ${stem}_kernels();\n")
    string(APPEND BACKPLANE_ROWS "    ${stem}_kernels,\n")
  endforeach()
  set(output "${CMAKE_CURRENT_BINARY_DIR}/op_table_${name}")
  configure_file("${BACKPLANE_CMAKE_DIR}/op_table.hpp.in" "${output}/op_table.hpp" @ONLY)
  configure_file("${BACKPLANE_CMAKE_DIR}/op_table.cpp.in" "${output}/op_table.cpp" @ONLY)
  target_sources(${objects} PRIVATE ${files} "${output}/op_table.cpp")
  target_include_directories(${objects} PUBLIC "${output}")
endfunction()
