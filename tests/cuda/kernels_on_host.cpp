#include "tests/cuda/kernels_on_host.hpp"

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

namespace backplane::cuda {
namespace {

void check_cl(cl_int code, const char* call) {
  if (code != CL_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed with " + std::to_string(code));
}

/// A kernel and what its arguments are: pointers, which come as addresses, and numbers of so many bytes.
struct HostKernel {
  cl_kernel kernel = nullptr;
  std::vector<std::size_t> sizes;  ///< 0: a pointer
};

/// Lives as long as the process: OpenCL libraries do not like to be ended by it.
class HostDevice {
 public:
  HostDevice() {
    cl_platform_id platform = nullptr;
    cl_int code = CL_SUCCESS;
    check_cl(clGetPlatformIDs(1, &platform, nullptr), "clGetPlatformIDs");
    check_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device_, nullptr), "clGetDeviceIDs");
    context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    check_cl(code, "clCreateContext");
    queue_ = clCreateCommandQueueWithProperties(context_, device_, nullptr, &code);
    check_cl(code, "clCreateCommandQueueWithProperties");
  }

  void run(const std::string& source, const Extent& groups, const Extent& group, void** arguments) {
    const HostKernel& kernel = find(source);
    for (cl_uint i = 0; i < kernel.sizes.size(); ++i) {
      void* const word = arguments[i];
      if (kernel.sizes[i] > 0) {
        check_cl(clSetKernelArg(kernel.kernel, i, kernel.sizes[i], word), "clSetKernelArg");
        continue;
      }
      void* address = nullptr;
      std::memcpy(&address, word, sizeof(address));
      check_cl(clSetKernelArgSVMPointer(kernel.kernel, i, address), "clSetKernelArgSVMPointer");
    }
    // The parts of a launch that CUDA's limits make begin elsewhere; networks of tests have none.
    for (std::size_t hidden = 0; hidden < 2; ++hidden) {
      std::uint32_t part = 0;
      std::memcpy(&part, arguments[kernel.sizes.size() + hidden], sizeof(part));
      if (part != 0) throw std::runtime_error("a launch in parts");
    }
    const std::size_t local[] = {group[0], group[1], group[2]};
    const std::size_t global[] = {local[0] * groups[0], local[1] * groups[1], local[2] * groups[2]};
    check_cl(clEnqueueNDRangeKernel(queue_, kernel.kernel, 3, nullptr, global, local, 0, nullptr,
                                    nullptr),
             "clEnqueueNDRangeKernel");
    check_cl(clFinish(queue_), "clFinish");
  }

 private:
  const HostKernel& find(const std::string& source) {
    HostKernel& found = kernels_[source];
    if (found.kernel != nullptr) return found;
    const char* text = source.c_str();
    cl_int code = CL_SUCCESS;
    cl_program const program = clCreateProgramWithSource(context_, 1, &text, nullptr, &code);
    check_cl(code, "clCreateProgramWithSource");
    // Of small networks: a kernel takes longer to be optimised than to run.
    code = clBuildProgram(program, 1, &device_,
                          "-cl-std=CL1.2 -w -cl-kernel-arg-info -cl-opt-disable", nullptr, nullptr);
    if (code != CL_SUCCESS) throw std::runtime_error(log_of(program) + source);
    found.kernel = clCreateKernel(program, "run", &code);
    check_cl(code, "clCreateKernel");
    cl_uint count = 0;
    check_cl(clGetKernelInfo(found.kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr),
             "clGetKernelInfo");
    for (cl_uint i = 0; i < count; ++i) found.sizes.push_back(size_of(found.kernel, i));
    return found;
  }

  std::string log_of(cl_program program) const {
    std::size_t size = 0;
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    std::string log(size, '\0');
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
    return log;
  }

  static std::size_t size_of(cl_kernel kernel, cl_uint index) {
    cl_kernel_arg_address_qualifier place = CL_KERNEL_ARG_ADDRESS_PRIVATE;
    check_cl(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(place),
                                &place, nullptr),
             "clGetKernelArgInfo");
    if (place != CL_KERNEL_ARG_ADDRESS_PRIVATE) return 0;
    char name[64] = "";
    check_cl(
        clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof(name), name, nullptr),
        "clGetKernelArgInfo");
    const std::string type = name;
    return type == "float" || type == "int" || type == "uint" || type == "i32" || type == "u32" ? 4
                                                                                                : 8;
  }

  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::map<std::string, HostKernel> kernels_;
};

}  // namespace

void run_kernel_on_host(const std::string& source, const Extent& groups, const Extent& group,
                        void** arguments) {
  static auto* const device = new HostDevice;
  device->run(source, groups, group, arguments);
}

}  // namespace backplane::cuda
