# Finds the CUDA toolkit: what tools/setup --cuda brought, or one of the system's (CUDAToolkit_ROOT, CUDA_PATH,
# /usr/local/cuda). Sets BACKPLANE_CUDA_FOUND, _MISSING (why not, in one line), _INCLUDE_DIR, _LIBRARY_DIR, _MAJOR.

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
find_path(BACKPLANE_NVRTC_INCLUDE_DIR nvrtc.h HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}" NO_DEFAULT_PATH)
find_library(BACKPLANE_NVRTC_LIBRARY "libnvrtc.so.${BACKPLANE_CUDA_MAJOR}"
             HINTS "${BACKPLANE_CUDA_INCLUDE_DIR}/.." PATH_SUFFIXES lib64 lib)
foreach(part IN ITEMS BACKPLANE_NVRTC_INCLUDE_DIR BACKPLANE_NVRTC_LIBRARY)
  if(NOT ${part})
    set(BACKPLANE_CUDA_MISSING
        "NVRTC (nvrtc.h, libnvrtc.so.${BACKPLANE_CUDA_MAJOR}) is not beside "
        "${BACKPLANE_CUDA_INCLUDE_DIR}; ${advice}")
    string(CONCAT BACKPLANE_CUDA_MISSING ${BACKPLANE_CUDA_MISSING})
    return()
  endif()
endforeach()
cmake_path(GET BACKPLANE_NVRTC_LIBRARY PARENT_PATH BACKPLANE_CUDA_LIBRARY_DIR)
set(BACKPLANE_CUDA_FOUND TRUE)
