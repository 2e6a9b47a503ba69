# Targets of this tree other than plugins and tests. Includes are written from the root of the tree
# ("core/graph/graph.hpp", "plugins/common/broadcast.hpp"), so a line says whose header it is;
# tools/checks/check_includes.py holds the table of who may include whom.

# backplane_sources(OUT ...)
# The files that the arguments name; one with a '*' stands for all that fit, so that a new file needs
# no line in a list. A build looks for new ones by itself.
function(backplane_sources out)
  set(files "")
  foreach(entry IN LISTS ARGN)
    if(entry MATCHES "[*]")
      file(GLOB entry CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${entry}")
    endif()
    list(APPEND files ${entry})
  endforeach()
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

# backplane_core_library(NAME graph SOURCES ... [DEPS base ...] [LIBS ...])
# One static library per folder of core/: target backplane_core_<NAME>. DEPS are folders of core/ on
# which it builds; LIBS are other targets. Both are PUBLIC: headers of a folder may show them.
function(backplane_core_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;DEPS;LIBS")
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_core_library: NAME and SOURCES are needed; not known: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target backplane_core_${arg_NAME})
  backplane_sources(sources ${arg_SOURCES})
  add_library(${target} STATIC ${sources})
  add_library(backplane::core_${arg_NAME} ALIAS ${target})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}"
                                              "${PROJECT_SOURCE_DIR}/core/include")
  list(TRANSFORM arg_DEPS PREPEND backplane_core_)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} ${arg_LIBS})
  backplane_target_defaults(${target})
endfunction()

# backplane_host_library(SOURCES ... [DEPS runtime ...] [LIBS ...])
# libbackplane.so.1, target backplane: the host interface over the static libraries of core/.
function(backplane_host_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES;DEPS;LIBS")
  backplane_sources(sources ${arg_SOURCES})
  add_library(backplane SHARED ${sources})
  add_library(backplane::backplane ALIAS backplane)
  target_include_directories(backplane PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include> $<INSTALL_INTERFACE:include>)
  target_include_directories(backplane PRIVATE "${PROJECT_SOURCE_DIR}")
  list(TRANSFORM arg_DEPS PREPEND backplane_core_)
  target_link_libraries(backplane PRIVATE ${arg_DEPS} ${arg_LIBS})
  set(map "${PROJECT_SOURCE_DIR}/cmake/host_symbols.map")
  target_link_options(backplane PRIVATE "-Wl,--version-script=${map}" -Wl,--exclude-libs,ALL)
  set_target_properties(backplane PROPERTIES
    SOVERSION 1 LINK_DEPENDS "${map}" LIBRARY_OUTPUT_DIRECTORY "${BACKPLANE_LIB_DIR}"
    INSTALL_RPATH "$ORIGIN" EXPORT_NAME backplane)
  backplane_target_defaults(backplane)
  add_dependencies(backplane_product backplane)
  install(TARGETS backplane EXPORT backplaneTargets
          LIBRARY DESTINATION lib COMPONENT core NAMELINK_COMPONENT devel)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/" DESTINATION include COMPONENT devel)
endfunction()

# backplane_tool(NAME cli OUTPUT backplane SOURCES ... [DEPS base ...] [LIBS ...] [NO_INSTALL])
# An executable bin/<OUTPUT>, target backplane_tool_<NAME>. Without DEPS it sees the public
# interface only (LIBS backplane::backplane).
function(backplane_tool)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_INSTALL" "NAME;OUTPUT" "SOURCES;DEPS;LIBS")
  if(NOT arg_NAME OR NOT arg_OUTPUT OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_tool: NAME, OUTPUT and SOURCES are needed; not known: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target backplane_tool_${arg_NAME})
  backplane_sources(sources ${arg_SOURCES})
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  list(TRANSFORM arg_DEPS PREPEND backplane_core_)
  target_link_libraries(${target} PRIVATE ${arg_DEPS} ${arg_LIBS})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${arg_OUTPUT} RUNTIME_OUTPUT_DIRECTORY "${BACKPLANE_BIN_DIR}"
    INSTALL_RPATH "$ORIGIN/../lib")
  backplane_target_defaults(${target})
  # Programs wait for the library, which has its own flags; what they include takes long to optimise.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(NOT arg_NO_INSTALL)
    install(TARGETS ${target} RUNTIME DESTINATION bin COMPONENT core)
    add_dependencies(backplane_product ${target})
  endif()
endfunction()
