// A libcuda.so.1 of long ago: it says its version, and has nothing of what the plugin needs.
// NOLINTBEGIN(readability-identifier-naming): the driver's own names
extern "C" {
int cuDriverGetVersion(int* version) { return *version = 11040, 0; }
int cuGetErrorName(int, const char** text) { return *text = "CUDA_ERROR_UNKNOWN", 0; }
}
// NOLINTEND(readability-identifier-naming)
