// Operators that kernels make of other kernels (bp.operators), on stub devices.
#include "core/plan/operator.hpp"

#include <atomic>
#include <cstring>
#include <thread>

#include "core/plan/compute_context.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

using Floats = std::vector<float>;

std::string error_of(Code code, const std::function<void()>& body) {
  try {
    body();
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), static_cast<bp_code>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}
#define EXPECT_WORDS(message, words) \
  EXPECT_NE((message).find(words), std::string::npos) << (message)

/// y = x * factor + b; b is packed where it is constant. Needs a workspace of the size of x, and uses it.
class Scale {
 public:
  struct Packer {
    void pack(const sdk::PackContext& ctx) const {
      ++packs;
      std::memcpy(ctx.target().mutable_data<float>(), ctx.source(0).data<float>(),
                  ctx.target().bytes());
    }
    static inline std::atomic<int> packs{0};
  };
  struct Prepared {
    float factor;
    bool packed;
    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      const auto* b = packed ? ctx.packed(0).data<float>() : ctx.input(1).data<float>();
      auto* work = ctx.workspace().mutable_data<float>();
      for (std::int64_t i = 0; i < ctx.input(0).size(); ++i) work[i] = x[i] * factor;
      for (std::int64_t i = 0; i < ctx.input(0).size(); ++i)
        ctx.output(0).mutable_data<float>()[i] = work[i] + b[i];
      EXPECT_EQ(ctx.packed_count(), packed ? 1u : 0u);
    }
  };
  Scale(const sdk::CreateContext&, const sdk::Node& node) : factor_(node.get_float("alpha", 1)) {
    if (factor_ == 0) sdk::unsupported("a factor of 0");
  }
  Prepared prepare(sdk::PrepareContext& ctx) const {
    if (ctx.input(0).rank() == 3) sdk::unsupported("three axes");
    if (ctx.input(0).rank() == 4) sdk::invalid("four axes");
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    ctx.set_workspace(ctx.input(0).bytes());
    ctx.set_variant("plain");
    if (ctx.input_constant(1)) {
      ctx.request_pack("copy", {1}, ctx.input(1).bytes(), &packer_);
      ctx.ignore_input(1);
    }
    return {factor_, ctx.input_constant(1)};
  }

 private:
  float factor_;
  Packer packer_;
};

/// The elements of x above 0, of which nobody knows how many there are. Counts how often it is prepared.
class Positive {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      Floats kept;
      for (std::int64_t i = 0; i < ctx.input(0).size(); ++i) {
        if (ctx.input(0).data<float>()[i] > 0) kept.push_back(ctx.input(0).data<float>()[i]);
      }
      const sdk::Dims dims{static_cast<std::int64_t>(kept.size())};
      auto* y = ctx.alloc_output(0, dims).mutable_data<float>();
      std::copy(kept.begin(), kept.end(), y);
    }
  };
  Positive(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ++prepared;
    EXPECT_EQ(ctx.input(0).data<float>(), nullptr);  // data, whose elements decide nothing
    ctx.set_output_unknown(0, sdk::DataType::Float, 1);
    return {};
  }
  static inline int prepared = 0;
};

/// Dims as a tensor says them: y has the dims that input 1 holds, filled with x.
class Fill {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      std::fill_n(ctx.output(0).mutable_data<float>(), ctx.output(0).size(),
                  *ctx.input(0).data<float>());
    }
  };
  Fill(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Float, ctx.input(1).to_ints());
    return {};
  }
};

/// y = x * w, of which `prepare` is shown no element.
class Weigh {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      for (std::int64_t i = 0; i < ctx.output(0).size(); ++i)
        ctx.output(0).mutable_data<float>()[i] =
            ctx.input(0).data<float>()[i] * ctx.input(1).data<float>()[i];
    }
  };
  Weigh(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    EXPECT_TRUE(ctx.input_constant(1));
    EXPECT_EQ(ctx.input(1).size(), 2);
    EXPECT_EQ(ctx.input(1).data<float>(), nullptr);
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    return {};
  }
};

/// y = x and, where somebody wants it, a mask of it.
class WithMask {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(0);
      std::copy_n(x.data<float>(), x.size(), ctx.output(0).mutable_data<float>());
      if (ctx.has_output(1)) std::fill_n(ctx.output(1).mutable_data<bool>(), x.size(), true);
    }
  };
  WithMask(const sdk::CreateContext&, const sdk::Node& node) : has_mask_(node.output(1)) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    EXPECT_EQ(ctx.output_wanted(1), has_mask_);
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    if (has_mask_) ctx.set_output(1, sdk::DataType::Bool, ctx.input(0).dims());
    ctx.set_variant(has_mask_ ? "and the mask" : "alone");
    return {};
  }

 private:
  bool has_mask_;
};

/// A kernel of Neg that makes an operator Neg.
class Endless {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext&) const {}
  };
  Endless(const sdk::CreateContext& ctx, const sdk::Node&)
      : self_(ctx, sdk::OperatorDraft("Neg").input(sdk::DataType::Float)) {}
  Prepared prepare(sdk::PrepareContext&) const { return {}; }

 private:
  sdk::Operator self_;
};

class OperatorTest : public PlanTest {
 protected:
  OperatorTest() {
    offer_interface(BP_OPERATORS_ID, BP_OPERATORS_VERSION, &operators_api());
    provider_.kernels = {
        sdk::op("Add").name("scale").types("T", {sdk::DataType::Float}).kernel<Scale>(),
        sdk::op("Relu").name("positive").flags(BP_KERNEL_DATA_DEPENDENT).kernel<Positive>(),
        sdk::op("Expand").name("fill").roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE}).kernel<Fill>(),
        sdk::op("Mul").name("weigh").roles({BP_INPUT_DATA, BP_INPUT_WEIGHT}).kernel<Weigh>(),
        sdk::op("Dropout").name("copy").kernel<WithMask>(),
        sdk::op("Neg").name("endless").kernel<Endless>()};
    use(provider_);
    devices_.schemas = &schemas_;
    devices_.weights = &weights_;
    create_ctx_ = make_create_context(devices_, 0, true, &threads_, 0);
  }

  sdk::CreateContext create_ctx() const { return sdk::CreateContext(&create_ctx_); }
  static sdk::OperatorDraft add(float alpha = 1) {
    sdk::OperatorDraft draft("Add", 14);
    return draft.name("sum").attribute("alpha", alpha);
  }
  /// Add of two inputs.
  sdk::Operator sum(float alpha = 1) const {
    return {create_ctx(), add(alpha).input(sdk::DataType::Float).input(sdk::DataType::Float)};
  }
  /// A plan for two inputs of these dims.
  sdk::OperatorPlan planned(const sdk::Operator& op, const sdk::Dims& dims) {
    bp_prepare_ctx raw = sdk::abi_struct<bp_prepare_ctx>();
    raw.threads = &threads_;
    sdk::TensorShape a(sdk::DataType::Float, dims), b(sdk::DataType::Float, dims);
    return op.prepare(sdk::PrepareContext(&raw), {a.get(), b.get()});
  }
  /// What a kernel's `compute` has, with a workspace.
  struct Run {
    Run(DeviceSet& devices, bp_threads* threads)
        : ctx(make_compute_context(&devices.at(0), threads)) {
      workspace.set_owned_tensor(DataType::UInt8, {4096});
      ctx.workspace = workspace.tensor;
    }
    sdk::ComputeContext get() const { return sdk::ComputeContext(&ctx); }
    RuntimeValue workspace;
    ComputeContext ctx;
  };
  static sdk::Tensor of(const RuntimeValue& value) { return sdk::Tensor(value.tensor); }
  static void fill(RuntimeValue& value, const sdk::Dims& dims, const Floats& elements) {
    value.set_owned_tensor(DataType::Float, dims);
    std::memcpy(value.description.host_ptr, elements.data(), elements.size() * sizeof(float));
  }
  static Floats elements(const sdk::Tensor& tensor) {
    return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
  }

  StubProvider provider_{"stub"};
  WeightStore weights_;
  CreateContext create_ctx_;
};

TEST_F(OperatorTest, ComputesOnTensorsOfTheCaller) {
  const sdk::Operator op = sum(10);
  const sdk::OperatorPlan plan = planned(op, {2});
  EXPECT_EQ(sdk::to_string(plan.output(0).dims()), "[2]");
  EXPECT_EQ(plan.output(0).bytes(), 8u);
  EXPECT_EQ(plan.workspace_bytes(), 8u);
  EXPECT_STREQ(plan.kernel(), "scale plain");
  RuntimeValue a, b, y;
  fill(a, {2}, {1, 2});
  fill(b, {2}, {5, 6});
  fill(y, {2}, {0, 0});
  const Run run(devices_, &threads_);
  plan.compute(run.get(), {of(a), of(b)}, {of(y)}, 64);
  EXPECT_EQ(elements(of(y)), (Floats{15, 26}));
  // Part of a larger piece of memory, with dims of the plan's.
  RuntimeValue large;
  fill(large, {4}, {0, 0, 0, 0});
  const sdk::TensorAt half(plan.output(0), of(large), 8);
  plan.compute(run.get(), {of(b), of(b)}, {half.get()});
  EXPECT_EQ(elements(of(large)), (Floats{0, 0, 55, 66}));
}

TEST_F(OperatorTest, ManyThreadsComputeOnePlan) {
  const sdk::Operator op = sum(2);
  const sdk::OperatorPlan plan = planned(op, {3});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int number = 0; number < 12; ++number) {  // more than a plan has frames
    threads.emplace_back([&, number] {
      RuntimeValue a, b, y;
      const auto n = static_cast<float>(number);
      fill(a, {3}, {n, n, n});
      fill(b, {3}, {1, 2, 3});
      fill(y, {3}, {0, 0, 0});
      const Run run(devices_, nullptr);
      for (int round = 0; round < 200; ++round) {
        plan.compute(run.get(), {of(a), of(b)}, {of(y)});
        if (elements(of(y)) != Floats{2 * n + 1, 2 * n + 2, 2 * n + 3}) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(OperatorTest, ConstantsArePackedOnce) {
  const int before = Scale::Packer::packs;
  RuntimeValue b;
  fill(b, {2}, {7, 8});
  sdk::OperatorDraft draft = add();
  draft.input(sdk::DataType::Float).constant(sdk::Value(&b));
  const sdk::Operator op(create_ctx(), draft);
  const sdk::OperatorPlan first = planned(op, {2}), second = planned(op, {2});
  EXPECT_EQ(Scale::Packer::packs, before + 1);
  RuntimeValue a, y;
  fill(a, {2}, {1, 2});
  fill(y, {2}, {0, 0});
  const Run run(devices_, &threads_);
  second.compute(run.get(), {of(a), sdk::Tensor(nullptr)}, {of(y)});
  EXPECT_EQ(elements(of(y)), (Floats{8, 10}));
}

TEST_F(OperatorTest, WeightsAreShownToComputeAlone) {
  RuntimeValue w, x, y;
  fill(w, {2}, {3, 4});
  sdk::OperatorDraft draft("Mul", 14);
  draft.input(sdk::DataType::Float).constant(sdk::Value(&w));
  const sdk::OperatorPlan plan = planned(sdk::Operator(create_ctx(), draft), {2});
  fill(x, {2}, {5, 6});
  fill(y, {2}, {0, 0});
  plan.compute(Run(devices_, &threads_).get(), {of(x), sdk::Tensor(nullptr)}, {of(y)});
  EXPECT_EQ(elements(of(y)), (Floats{15, 24}));
}

TEST_F(OperatorTest, LeavesOutWhatNobodyWants) {
  RuntimeValue x, y, mask;
  fill(x, {2}, {5, 6});
  mask.set_owned_tensor(DataType::Bool, {2});
  const Run run(devices_, &threads_);
  for (const bool omitted : {false, true}) {
    sdk::OperatorDraft draft("Dropout", 13);
    draft.input(sdk::DataType::Float).outputs(2);
    if (omitted) draft.omit_output(1);
    const sdk::Operator op(create_ctx(), draft);
    bp_prepare_ctx raw = sdk::abi_struct<bp_prepare_ctx>();
    raw.threads = &threads_;
    sdk::TensorShape shape(sdk::DataType::Float, {2});
    const sdk::OperatorPlan plan = op.prepare(sdk::PrepareContext(&raw), {shape.get()});
    EXPECT_STREQ(plan.kernel(), omitted ? "copy alone" : "copy and the mask");
    fill(y, {2}, {0, 0});
    *static_cast<bool*>(mask.description.host_ptr) = false;
    plan.compute(run.get(), {of(x)}, {of(y), omitted ? sdk::Tensor(nullptr) : of(mask)});
    EXPECT_EQ(elements(of(y)), (Floats{5, 6}));
    EXPECT_EQ(*static_cast<bool*>(mask.description.host_ptr), !omitted);
  }
}

TEST_F(OperatorTest, RefusesTensorsThatDoNotFitThePlan) {
  const sdk::Operator op = sum();
  const sdk::OperatorPlan plan = planned(op, {2});
  RuntimeValue two, three, bare;
  fill(two, {2}, {1, 2});
  fill(three, {3}, {1, 2, 3});
  bare.set_tensor(DataType::Float, {2});
  Run run(devices_, &threads_);
  const auto refused = [&](const RuntimeValue& a, const RuntimeValue& y) {
    return error_of(Code::InvalidArgument, [&] {
      plan.compute(run.get(), {of(a), of(two)}, {of(y)});
    });
  };
  EXPECT_WORDS(refused(three, two), "operator 'sum' (Add): input 0 is tensor(float) [3], but");
  EXPECT_WORDS(refused(two, three), "output 0 is tensor(float) [3]");
  EXPECT_WORDS(refused(bare, two), "input 0 has no host memory");
  RuntimeValue strided;
  fill(strided, {2}, {1, 2});
  strided.strides = {1};
  strided.description.strides = strided.strides.data();
  EXPECT_WORDS(refused(strided, two), "strided");
  EXPECT_WORDS(
      error_of(Code::InvalidArgument, [&] { plan.compute(run.get(), {of(two)}, {of(two)}); }),
      "given 1 inputs and 1 outputs");
  EXPECT_WORDS(error_of(Code::InvalidArgument,
                        [&] {
                          plan.compute(run.get(), {of(two), sdk::Tensor(nullptr)}, {of(two)});
                        }),
               "input 1 is missing");
  bp_operator_args args = sdk::abi_struct<bp_operator_args>();
  const bp_tensor* tensors[2] = {two.tensor, two.tensor};
  args.inputs = args.outputs = tensors;
  args.input_count = 2;
  args.output_count = 1;
  EXPECT_WORDS(error_of(Code::InvalidArgument,
                        [&] { sdk::check(operators_api().compute(plan.raw(), &run.ctx, &args)); }),
               "workspace of 8 bytes");
}

TEST_F(OperatorTest, SaysWhyNoKernelTakesIt) {
  using sdk::DataType;
  const auto made = [&](Code code, sdk::OperatorDraft draft) {
    return error_of(code, [&] { const sdk::Operator op(create_ctx(), std::move(draft)); });
  };
  EXPECT_WORDS(made(Code::Unsupported, add(0).input(DataType::Float).input(DataType::Float)),
               "operator 'sum' (Add): no kernel takes it: scale: a factor of 0");
  EXPECT_WORDS(made(Code::Unsupported, add().input(DataType::Double).input(DataType::Double)),
               "input 0 is tensor(double)");
  EXPECT_WORDS(made(Code::Unsupported, sdk::OperatorDraft("Abs").input(DataType::Float)),
               "stub has no kernel for Abs");
  EXPECT_WORDS(made(Code::InvalidArgument, sdk::OperatorDraft("Reluu").input(DataType::Float)),
               "Relu");
  EXPECT_WORDS(made(Code::InvalidArgument, sdk::OperatorDraft("Mish", 3).input(DataType::Float)),
               "version 3 of its domain does not have it; it came with version 18");
  EXPECT_WORDS(made(Code::InvalidArgument, sdk::OperatorDraft("Relu").input("tensor(flot)")),
               "tensor(flot)");
  EXPECT_WORDS(made(Code::InvalidArgument, sdk::OperatorDraft("Neg").input(DataType::Float)),
               "does the kernel of one make the operator itself");
  EXPECT_WORDS(made(Code::Unsupported, sdk::OperatorDraft("Relu").input(DataType::Float).on_host()),
               "no device for it");

  const sdk::Operator op = sum();
  EXPECT_WORDS(error_of(Code::Unsupported,
                        [&] {
                          planned(op, {1, 1, 1});
                        }),
               "no kernel takes these shapes: three axes");
  EXPECT_WORDS(error_of(Code::InvalidArgument, [&] { planned(op, {1, 1, 1, 1}); }), "four axes");
}

TEST_F(OperatorTest, ElementsThatDecideTheShapeAreGivenToPrepare) {
  const sdk::Operator op(
      create_ctx(),
      sdk::OperatorDraft("Expand").input(sdk::DataType::Float).input(sdk::DataType::Int64));
  bp_prepare_ctx raw = sdk::abi_struct<bp_prepare_ctx>();
  sdk::TensorShape x(sdk::DataType::Float, {}), shape(sdk::DataType::Int64, {2});
  const auto prepared = [&] {
    return op.prepare(sdk::PrepareContext(&raw), {x.get(), shape.get()});
  };
  EXPECT_WORDS(error_of(Code::InvalidArgument, [&] { prepared(); }), "input 1 decides the shapes");
  const std::int64_t dims[2] = {2, 3};
  shape.elements(dims);
  EXPECT_EQ(sdk::to_string(prepared().output(0).dims()), "[2,3]");
}

TEST_F(OperatorTest, CallMakesOutputsAndRemembersShapes) {
  const sdk::Operator op(create_ctx(), sdk::OperatorDraft("Relu").input(sdk::DataType::Float));
  bp_prepare_ctx raw = sdk::abi_struct<bp_prepare_ctx>();
  sdk::TensorShape shape(sdk::DataType::Float, {3});
  EXPECT_WORDS(
      error_of(Code::Unsupported, [&] { op.prepare(sdk::PrepareContext(&raw), {shape.get()}); }),
      "use `call`");
  const Run run(devices_, &threads_);
  const int before = Positive::prepared;
  for (const float first : {-1.0f, 4.0f}) {
    RuntimeValue x;
    fill(x, {3}, {first, 2, -3});
    const auto outputs = op.call(run.get(), {sdk::Value(&x)});
    EXPECT_EQ(elements(outputs.at(0).get().tensor()), first > 0 ? (Floats{4, 2}) : (Floats{2}));
  }
  EXPECT_EQ(Positive::prepared, before + 1);
  for (std::int64_t size = 4; size < 12; ++size) {
    RuntimeValue x;
    fill(x, {size}, Floats(static_cast<std::size_t>(size), 1.0f));
    EXPECT_EQ(op.call(run.get(), {sdk::Value(&x)}).at(0).get().tensor().size(), size);
  }
  EXPECT_WORDS(error_of(Code::InvalidArgument, [&] { op.call(run.get(), {sdk::Value()}); }),
               "input 0 is missing");
  RuntimeValue number;
  number.set_owned_tensor(DataType::Int64, {1});
  EXPECT_WORDS(error_of(Code::InvalidArgument, [&] { op.call(run.get(), {sdk::Value(&number)}); }),
               "input 0 is tensor(int64), but it was made for tensor(float)");
}

TEST_F(OperatorTest, CallPlansAgainWhenElementsDecideTheShape) {
  const sdk::Operator op(
      create_ctx(),
      sdk::OperatorDraft("Expand").input(sdk::DataType::Float).input(sdk::DataType::Int64));
  const Run run(devices_, &threads_);
  RuntimeValue x, shape;
  fill(x, {}, {9});
  shape.set_owned_tensor(DataType::Int64, {1});
  for (const std::int64_t size : {3, 5, 3}) {
    *static_cast<std::int64_t*>(shape.description.host_ptr) = size;
    const auto y = op.call(run.get(), {sdk::Value(&x), sdk::Value(&shape)});
    EXPECT_EQ(elements(y.at(0).get().tensor()), Floats(static_cast<std::size_t>(size), 9.0f));
  }
}

TEST_F(OperatorTest, NeedsASession) {
  devices_.schemas = nullptr;
  EXPECT_WORDS(error_of(Code::Unsupported, [&] { sum(); }), "this session has no device");
}

}  // namespace
}  // namespace backplane::core
