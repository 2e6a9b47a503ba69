#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {
namespace {

struct Name {
  cl_int code;
  const char* text;
};

constexpr Name kNames[] = {
    {0, "CL_SUCCESS"},
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-9, "CL_IMAGE_FORMAT_MISMATCH"},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-12, "CL_MAP_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-15, "CL_COMPILE_PROGRAM_FAILURE"},
    {-16, "CL_LINKER_NOT_AVAILABLE"},
    {-17, "CL_LINK_PROGRAM_FAILURE"},
    {-18, "CL_DEVICE_PARTITION_FAILED"},
    {-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"},
    {-30, "CL_INVALID_VALUE"},
    {-31, "CL_INVALID_DEVICE_TYPE"},
    {-32, "CL_INVALID_PLATFORM"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-35, "CL_INVALID_QUEUE_PROPERTIES"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-42, "CL_INVALID_BINARY"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-47, "CL_INVALID_KERNEL_DEFINITION"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-57, "CL_INVALID_EVENT_WAIT_LIST"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-64, "CL_INVALID_PROPERTY"},
    {-66, "CL_INVALID_COMPILER_OPTIONS"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

}  // namespace

std::string error_name(cl_int code) {
  for (const Name& name : kNames) {
    if (name.code == code) return name.text;
  }
  return sdk::message("OpenCL error ", code);
}

bp_code error_code(cl_int code) {
  switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
      return BP_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
      return BP_DEVICE_LOST;
    default:
      return BP_INTERNAL;
  }
}

void throw_cl(cl_int code, const char* call, const std::string& what) {
  throw sdk::Error(error_code(code),
                   sdk::message(call, ": ", error_name(code), what.empty() ? "" : ", ", what));
}

std::string device_text(cl_device_id device, cl_device_info property) {
  std::size_t size = 0;
  check_cl(clGetDeviceInfo(device, property, 0, nullptr, &size), "clGetDeviceInfo");
  std::string text(size, '\0');
  check_cl(clGetDeviceInfo(device, property, size, text.data(), nullptr), "clGetDeviceInfo");
  return text.substr(0, text.find('\0'));
}

std::string platform_text(cl_platform_id platform, cl_platform_info property) {
  std::size_t size = 0;
  check_cl(clGetPlatformInfo(platform, property, 0, nullptr, &size), "clGetPlatformInfo");
  std::string text(size, '\0');
  check_cl(clGetPlatformInfo(platform, property, size, text.data(), nullptr), "clGetPlatformInfo");
  return text.substr(0, text.find('\0'));
}

}  // namespace backplane::opencl
