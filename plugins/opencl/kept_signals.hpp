// What signals do in the process, kept over calls of drivers.
#pragma once

namespace backplane::opencl {

/// Held over calls that may start a driver's compiler: what signals did before the first of those that live at a time is put back,
/// where it has changed, as each of them ends. LLVM puts handlers in the program's place with its first output file, which PoCL
/// writes when its devices are asked for, and PoCL one for divisions by zero, which no kernel here does.
///
/// A signal that arrives meanwhile meets the driver's handler (LLVM's hands on all but SIGUSR1), and a handler that another thread
/// of the program sets meanwhile is lost. Threads: any.
class KeptSignals {
 public:
  KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals();
};

}  // namespace backplane::opencl
