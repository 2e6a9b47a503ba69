// A libcuda.so.1 that shows one device and can do nothing else: what the plugin does on a machine with a driver can
// be seen up to the first thing that takes a device. It takes code for a kernel, which is the last thing that cuDNN
// does before a plan is finished (cudnn_test.cpp).
#include <cstring>
#include <cuda.h>

#define FAKE_TEXT_(name) #name
#define FAKE_TEXT(name) FAKE_TEXT_(name)
// Another name, in the version that cuda.h gives it, for the function that serves nothing.
#define FAKE_REST(name) FAKE_NAME(FAKE_TEXT(name))
#define FAKE_NAME(text) \
  asm(".globl " text "\n.type " text ", @function\n.set " text ", fake_serves_nothing");

namespace {
char place = 0;  ///< of whatever is a handle
}

extern "C" {

CUresult fake_serves_nothing() { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "Fake device", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
  return std::memset(uuid, 7, sizeof(*uuid)), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  return *bytes = std::size_t{1} << 33, CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
           : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK  ? 1024
                                                                 : 0;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return *library = reinterpret_cast<CUlibrary>(&place), CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  return *kernel = reinterpret_cast<CUkernel>(&place), CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }

FAKE_REST(cuDeviceCanAccessPeer)
FAKE_REST(cuDevicePrimaryCtxRetain)
FAKE_REST(cuDevicePrimaryCtxRelease)
FAKE_REST(cuCtxGetCurrent)
FAKE_REST(cuCtxSetCurrent)
FAKE_REST(cuThreadExchangeStreamCaptureMode)
FAKE_REST(cuCtxEnablePeerAccess)
FAKE_REST(cuMemPoolCreate)
FAKE_REST(cuMemPoolDestroy)
FAKE_REST(cuMemPoolSetAttribute)
FAKE_REST(cuMemPoolSetAccess)
FAKE_REST(cuMemPoolTrimTo)
FAKE_REST(cuMemAllocFromPoolAsync)
FAKE_REST(cuMemFreeAsync)
FAKE_REST(cuMemAlloc)
FAKE_REST(cuMemFree)
FAKE_REST(cuMemHostAlloc)
FAKE_REST(cuMemFreeHost)
FAKE_REST(cuMemcpyAsync)
FAKE_REST(cuPointerGetAttribute)
FAKE_REST(cuStreamCreate)
FAKE_REST(cuStreamDestroy)
FAKE_REST(cuStreamSynchronize)
FAKE_REST(cuStreamGetCtx)
FAKE_REST(cuStreamWaitEvent)
FAKE_REST(cuStreamWaitValue64)
FAKE_REST(cuStreamWriteValue64)
FAKE_REST(cuEventCreate)
FAKE_REST(cuEventDestroy)
FAKE_REST(cuEventRecord)
FAKE_REST(cuEventQuery)
FAKE_REST(cuEventSynchronize)
FAKE_REST(cuEventElapsedTime)
FAKE_REST(cuModuleLoadData)
FAKE_REST(cuModuleUnload)
FAKE_REST(cuModuleGetFunction)
FAKE_REST(cuFuncSetAttribute)
FAKE_REST(cuLaunchKernel)
FAKE_REST(cuStreamBeginCapture)
FAKE_REST(cuStreamEndCapture)
FAKE_REST(cuStreamIsCapturing)
FAKE_REST(cuGraphDestroy)
FAKE_REST(cuGraphInstantiate)
FAKE_REST(cuGraphExecUpdate)
FAKE_REST(cuGraphExecDestroy)
FAKE_REST(cuGraphLaunch)
FAKE_REST(cuGetErrorString)
FAKE_REST(cuCtxGetLimit)
FAKE_REST(cuGetExportTable)
FAKE_REST(cuLinkComplete)
FAKE_REST(cuLinkDestroy)
FAKE_REST(cuLaunchCooperativeKernel)
FAKE_REST(cuLibraryLoadFromFile)
FAKE_REST(cuKernelSetAttribute)
FAKE_REST(cuKernelGetAttribute)
FAKE_REST(cuOccupancyMaxPotentialClusterSize)
FAKE_REST(cuLaunchKernelEx)
// cuDNN asks for these without a version.
FAKE_NAME("cuCtxPopCurrent")
FAKE_NAME("cuCtxPushCurrent")
FAKE_NAME("cuLinkAddData")
FAKE_NAME("cuLinkCreate")
}
