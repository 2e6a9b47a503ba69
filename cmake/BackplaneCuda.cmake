# Finds the CUDA toolkit: what tools/setup --cuda brought, or one of the system's (CUDAToolkit_ROOT, CUDA_PATH,
# /usr/local/cuda). Sets BACKPLANE_CUDA_FOUND, _MISSING (why not, in one line), _INCLUDE_DIR, _MAJOR, and
# BACKPLANE_NVRTC_LIBRARY, BACKPLANE_CUBLASLT_LIBRARY, and BACKPLANE_CUDNN_LIBRARY where cuDNN 9 is too.

set(BACKPLANE_CUDA_FOUND FALSE)
set(places "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "$ENV{CUDA_PATH}" "$ENV{CUDA_HOME}"
           /usr/local/cuda "${BACKPLANE_DEPS_DIR}/cuda")
find_path(BACKPLANE_CUDA_INCLUDE_DIR cuda.h HINTS ${places} PATH_SUFFIXES include)
set(advice "a CUDA toolkit 12.x or 13.x, or tools/setup --cuda, brings it")
if(NOT BACKPLANE_CUDA_INCLUDE_DIR)
  set(BACKPLANE_CUDA_MISSING "cuda.h is not there; ${advice}")
  return()
endif()
file(STRINGS "${BACKPLANE_CUDA_INCLUDE_DIR}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+$" version "${line}")
if(NOT version)
  set(version 0)
endif()
math(EXPR BACKPLANE_CUDA_MAJOR "${version} / 1000")
if(NOT BACKPLANE_CUDA_MAJOR MATCHES "^1[23]$")
  set(BACKPLANE_CUDA_MISSING "${BACKPLANE_CUDA_INCLUDE_DIR}/cuda.h is of CUDA ${version}; ${advice}")
  return()
endif()
foreach(part IN ITEMS nvrtc cublasLt)
  string(TOUPPER ${part} name)
  find_path(BACKPLANE_${name}_INCLUDE_DIR ${part}.h HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}"
            NO_DEFAULT_PATH)
  find_library(BACKPLANE_${name}_LIBRARY "lib${part}.so.${BACKPLANE_CUDA_MAJOR}"
               HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}/.." PATH_SUFFIXES lib64 lib)
  if(NOT BACKPLANE_${name}_INCLUDE_DIR OR NOT BACKPLANE_${name}_LIBRARY)
    set(BACKPLANE_CUDA_MISSING "${part}.h or lib${part}.so.${BACKPLANE_CUDA_MAJOR} is not beside "
                               "${BACKPLANE_CUDA_INCLUDE_DIR}; ${advice}")
    string(CONCAT BACKPLANE_CUDA_MISSING ${BACKPLANE_CUDA_MISSING})
    return()
  endif()
endforeach()
find_path(BACKPLANE_CUDNN_INCLUDE_DIR cudnn.h HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}" ${places}
          PATH_SUFFIXES include)
find_library(BACKPLANE_CUDNN_LIBRARY libcudnn.so.9 HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}/.." ${places}
             PATH_SUFFIXES lib64 lib)
set(BACKPLANE_CUDA_FOUND TRUE)

# The engine: what links CUDA's libraries, beside the plugins, which open it.
function(backplane_cuda_engine)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/engine/*.cpp")
  list(SORT sources)
  if(NOT BACKPLANE_CUDNN_INCLUDE_DIR OR NOT BACKPLANE_CUDNN_LIBRARY)
    message(NOTICE "plugins/cuda is built without convolutions and attention: cudnn.h or libcudnn.so.9 is not "
                   "there; cuDNN 9, or tools/setup --cuda, brings it")
    list(FILTER sources EXCLUDE REGEX "/cudnn[a-z_]*[.]cpp$")
  endif()
  add_library(backplane_cuda_engine MODULE ${sources})
  target_link_libraries(backplane_cuda_engine PRIVATE backplane::plugin_api
                        "${BACKPLANE_NVRTC_LIBRARY}" "${BACKPLANE_CUBLASLT_LIBRARY}")
  target_include_directories(backplane_cuda_engine PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(backplane_cuda_engine SYSTEM PRIVATE "${BACKPLANE_CUDA_INCLUDE_DIR}")
  # Where the toolkit of this machine is; elsewhere the loader's own places serve.
  cmake_path(GET BACKPLANE_NVRTC_LIBRARY PARENT_PATH folders)
  if(BACKPLANE_CUDNN_INCLUDE_DIR AND BACKPLANE_CUDNN_LIBRARY)
    target_link_libraries(backplane_cuda_engine PRIVATE "${BACKPLANE_CUDNN_LIBRARY}")
    target_include_directories(backplane_cuda_engine SYSTEM PRIVATE "${BACKPLANE_CUDNN_INCLUDE_DIR}")
    target_compile_definitions(backplane_cuda_engine PRIVATE BACKPLANE_HAS_CUDNN)
    cmake_path(GET BACKPLANE_CUDNN_LIBRARY PARENT_PATH folder)
    list(APPEND folders "${folder}")
    list(REMOVE_DUPLICATES folders)
  endif()
  set(map "${PROJECT_SOURCE_DIR}/cmake/cuda_engine_symbols.map")
  target_link_options(backplane_cuda_engine PRIVATE "-Wl,--version-script=${map}")
  set_target_properties(backplane_cuda_engine PROPERTIES
    PREFIX "" OUTPUT_NAME cuda_engine LINK_DEPENDS "${map}"
    LIBRARY_OUTPUT_DIRECTORY "${BACKPLANE_LIB_DIR}/backplane/deps"
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN;${folders}")
  backplane_target_defaults(backplane_cuda_engine)
  install(TARGETS backplane_cuda_engine LIBRARY DESTINATION lib/backplane/deps
          COMPONENT plugin_cuda)
  add_dependencies(backplane_product backplane_cuda_engine)
endfunction()
