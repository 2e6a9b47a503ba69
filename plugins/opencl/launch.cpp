#include "plugins/opencl/launch.hpp"

#include <functional>
#include <thread>
#include <utility>

namespace backplane::opencl {

using device_ops::CopyPlan;
using device_ops::LaunchPlan;
using device_ops::LoopPlan;
using device_ops::MemoryRef;
using device_ops::Place;

namespace {

cl_mem memory_of(const bp_tensor& tensor) {
  const auto* const buffer = reinterpret_cast<const Buffer*>(tensor.buffer);
  return buffer == nullptr ? nullptr : buffer->memory.get();
}

/// What a kernel may touch of an argument: the whole tensor, since strides go anywhere in it. Memory that only this
/// node's kernels see and never write (tables, packed constants) has no order.
void use(Command& command, Place place, const bp_tensor& tensor) {
  if (place == Place::Table || place == Place::Packed || tensor.buffer == nullptr) return;
  command.uses(
      access_of(tensor, 0, tensor.bytes, place == Place::Output || place == Place::Workspace));
}

/// Where a thread looks first for a free kernel object: threads spread over them.
std::size_t thread_number() {
  static std::atomic<std::size_t> count{0};
  thread_local const std::size_t number = count.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

KernelPool::KernelPool(std::shared_ptr<const BuiltProgram> program, const std::string& where)
    : program_(std::move(program)), slots_(std::make_unique<Slot[]>(kSlots)) {
  for (std::size_t i = 0; i < kSlots; ++i) slots_[i].kernel = program_->take(where);
}

KernelPool::~KernelPool() {
  if (slots_ == nullptr) return;
  for (std::size_t i = 0; i < kSlots; ++i) program_->give_back(std::move(slots_[i].kernel));
}

void KernelPool::set(cl_uint index, std::size_t size, const void* value) {
  for (std::size_t i = 0; i < kSlots; ++i)
    check_cl(clSetKernelArg(slots_[i].kernel.get(), index, size, value), "clSetKernelArg");
}

std::size_t KernelPool::take() const {
  for (std::size_t slot = thread_number() % kSlots;; slot = (slot + 1) % kSlots) {
    if (!slots_[slot].is_taken.exchange(true, std::memory_order_acquire)) return slot;
    // More callers than objects: each holds its own for a microsecond.
    std::this_thread::yield();
  }
}

void KernelPool::give_back(std::size_t slot) const {
  slots_[slot].is_taken.store(false, std::memory_order_release);
}

Launches::Launches(Device& device, const device_ops::Work& work)
    : device_(device), label_(work.label()) {
  for (const std::vector<unsigned char>& table : work.tables()) add_table(table);
  for (const device_ops::Work::Step& step : work.steps()) {
    if (const auto* const launch = std::get_if<LaunchPlan>(&step)) {
      steps_.push_back({make_launch(*launch), launch->unless_inside});
    } else if (const auto* const loop = std::get_if<LoopPlan>(&step)) {
      Loop made{{}, loop->times};
      for (const LaunchPlan& each : loop->launches) made.launches.push_back(make_launch(each));
      steps_.push_back({std::move(made)});
    } else {
      const auto& copy = std::get<CopyPlan>(step);
      steps_.push_back({copy, copy.unless_inside});
    }
  }
}

std::string Launches::where() const {
  return sdk::message("node '", label_, "' on OpenCL device ", device_.traits().name);
}

Launches::~Launches() {
  for (const int number : faults_) device_.faults().remove(number);
}

Launches::Launch Launches::make_launch(const LaunchPlan& plan) {
  Launch launch{KernelPool(device_.programs().get(plan.source), where()),
                plan.memory,
                plan.items,
                plan.group,
                0,
                plan.name};
  for (std::size_t d = 0; d < 3; ++d)
    launch.global[d] = (plan.items[d] + plan.group[d] - 1) / plan.group[d] * plan.group[d];
  auto argument = static_cast<cl_uint>(2 * plan.memory.size());
  for (const device_ops::Scalar& scalar : plan.scalars) {
    std::visit([&](const auto& value) { launch.kernels.set(argument++, sizeof(value), &value); },
               scalar);
  }
  if (!plan.fault.empty()) {
    const cl_int number = device_.faults().add(sdk::message("node '", label_, "': ", plan.fault));
    faults_.push_back(number);
    launch.fault_argument = argument++;
    launch.kernels.set(argument, sizeof(number), &number);
  }
  return launch;
}

void Launches::add_table(const std::vector<unsigned char>& bytes) {
  cl_int code = CL_SUCCESS;
  tables_.emplace_back(clCreateBuffer(device_.context(), CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                      bytes.size(), const_cast<unsigned char*>(bytes.data()),
                                      &code));
  if (code != CL_SUCCESS) throw_cl(code, "clCreateBuffer", where());
}

void Launches::compute(const sdk::ComputeContext& ctx) const {
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  for (const Step& step : steps_) {
    if (step.unless_inside >= 0 && ctx.input_inside(static_cast<std::uint32_t>(step.unless_inside)))
      continue;
    std::visit([&](const auto& work) { enqueue(work, ctx, stream); }, step.work);
  }
}

void Launches::enqueue(const Loop& loop, const sdk::ComputeContext& ctx, Stream& stream) const {
  for (cl_long time = 0; time < loop.times; ++time) {
    for (const Launch& launch : loop.launches) enqueue(launch, ctx, stream, &time);
  }
}

void Launches::enqueue(const Launch& launch, const sdk::ComputeContext& ctx, Stream& stream,
                       const cl_long* time) const {
  Command command(stream);
  const std::size_t slot = launch.kernels.take();
  cl_kernel kernel = launch.kernels.kernel(slot);
  cl_int code = CL_SUCCESS;
  cl_uint argument = 0;
  for (const LaunchPlan::MemoryArgument& each : launch.memory) {
    const bool is_table = each.memory.place == Place::Table;
    const bp_tensor& tensor = tensor_of(ctx, each.memory);
    const cl_mem memory = is_table ? tables_[each.memory.index].get() : memory_of(tensor);
    const auto first = static_cast<cl_long>(((is_table ? 0 : tensor.offset) + each.memory.offset) /
                                            each.element_bytes);
    code |=
        clSetKernelArg(kernel, argument++, sizeof(memory), memory == nullptr ? nullptr : &memory);
    code |= clSetKernelArg(kernel, argument++, sizeof(first), &first);
    if (command.is_ordered_by_events()) use(command, each.memory.place, tensor);
  }
  if (time != nullptr) code |= clSetKernelArg(kernel, argument, sizeof(*time), time);
  if (launch.fault_argument != 0) {
    const cl_mem word = stream.faults().memory();
    code |= clSetKernelArg(kernel, launch.fault_argument, sizeof(word), &word);
    stream.faults().arm();
  }
  const char* call = "clSetKernelArg";
  if (code == CL_SUCCESS) {
    call = "clEnqueueNDRangeKernel";
    code = clEnqueueNDRangeKernel(stream.queue(), kernel, 3, nullptr, launch.global.data(),
                                  launch.local.data(), command.wait_count(), command.wait_list(),
                                  command.event());
  }
  launch.kernels.give_back(slot);
  if (code != CL_SUCCESS) throw_cl(code, call, where());
  command.done(launch.name);
}

void Launches::enqueue(const CopyPlan& copy, const sdk::ComputeContext& ctx, Stream& stream) const {
  const bp_tensor &from = tensor_of(ctx, copy.from), &to = tensor_of(ctx, copy.to);
  const std::uint64_t first = from.offset + copy.from.offset, target = to.offset + copy.to.offset;
  if (memory_of(from) == memory_of(to) && first == target) return;  // in place
  Command command(stream);
  command.uses(access_of(from, copy.from.offset, copy.bytes, false));
  command.uses(access_of(to, copy.to.offset, copy.bytes, true));
  const cl_int code =
      clEnqueueCopyBuffer(stream.queue(), memory_of(from), memory_of(to), first, target, copy.bytes,
                          command.wait_count(), command.wait_list(), command.event());
  if (code != CL_SUCCESS) throw_cl(code, "clEnqueueCopyBuffer", where());
  command.done("copy");
}

}  // namespace backplane::opencl
