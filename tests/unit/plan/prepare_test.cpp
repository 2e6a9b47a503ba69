// What kernels tell the host in `prepare`, and of sizes in `compute`: what the header forbids is refused, and changes nothing.
#include "core/plan/prepare.hpp"

#include <functional>

#include "core/plan/compute_context.hpp"
#include "core/plan/host_evaluator.hpp"
#include "core/plugin_host/status.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

using Prepare = std::function<bp_status*(bp_prepare_ctx*)>;
using Compute = std::function<bp_status*(const bp_kctx*)>;

Prepare prepare_function;
Compute compute_function;

/// A kernel that does what the functions say, without the SDK.
bp_kernel_def plain_def() {
  bp_kernel_def def = sdk::abi_struct<bp_kernel_def>();
  def.domain = "";
  def.op_type = "Relu";
  def.name = "plain:relu";
  def.since_min = 1;
  def.since_max = 1000;
  def.flags = BP_KERNEL_DATA_DEPENDENT;
  def.destroy = [](bp_kernel*) {};
  def.prepare = [](bp_kernel*, bp_prepare_ctx* ctx, bp_prepared** out) {
    static int prepared;
    *out = reinterpret_cast<bp_prepared*>(&prepared);
    return prepare_function(ctx);
  };
  def.release = [](bp_prepared*) {};
  def.compute = [](const bp_prepared*, const bp_kctx* ctx) { return compute_function(ctx); };
  return def;
}

class PrepareTest : public PlanTest {
 protected:
  PrepareTest() {
    device_ = provider_.open(&threads_);
    static int created;
    kernel_ =
        KernelHandle(device_, device_->plugin(), &def_, reinterpret_cast<bp_kernel*>(&created));
    x_.set_owned_tensor(DataType::Float, {3, 4});
    request_.kernel = &kernel_;
    request_.inputs = {&x_};
    request_.constant_inputs = {false};
    request_.wanted_outputs = {true, true};
    request_.threads = &threads_;
  }

  /// The message of a status, which it ends.
  static std::string words_of(bp_status* status, Code code = Code::InvalidArgument) {
    if (status == nullptr) return "success";
    const Error error = take_error(status);
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  /// What the host says to one call of `prepare`'s table, and then to the kernel, which goes on.
  std::string said_of(const Prepare& call, Code code = Code::InvalidArgument) {
    std::string words;
    prepare_function = [&](bp_prepare_ctx* ctx) {
      for (std::uint32_t output : {0u, 1u})
        sdk::check(ctx->api->set_output(ctx, output, BP_FLOAT, 1, kTwo));
      words = words_of(call(ctx), code);
      return static_cast<bp_status*>(nullptr);
    };
    const PrepareResult result = prepare_kernel(request_);
    EXPECT_EQ(result.outputs[0].dims, std::vector<std::int64_t>{2}) << "what was refused is kept";
    EXPECT_EQ(result.outputs[0].type, DataType::Float);
    EXPECT_EQ(result.outputs[0].kind, OutputPlan::Kind::Tensor);
    EXPECT_TRUE(result.packs.empty());
    return words;
  }
  /// The error of a kernel that said of output 0 that it is unknown, of this rank, and computes so. The second is left out.
  std::string computed(std::int32_t rank, const Compute& compute) {
    request_.wanted_outputs = {true, false};
    prepare_function = [&](bp_prepare_ctx* ctx) {
      return ctx->api->set_output_unknown(ctx, 0, BP_FLOAT, rank);
    };
    compute_function = compute;
    const PrepareResult result = prepare_kernel(request_);
    outputs_ = *make_host_outputs(result, request_.wanted_outputs, 1024);
    try {
      compute_on_host(result, *device_, &threads_, nullptr, request_.inputs, outputs_, {});
    } catch (const Error& error) {
      return error.message();
    }
    return "success";
  }
  static void expect_words(const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  static constexpr std::int64_t kTwo[] = {2};
  static constexpr std::int64_t kNegative[] = {-3, 4};

  StubProvider provider_{"stub"};
  DevicePtr device_;
  bp_kernel_def def_ = plain_def();
  KernelHandle kernel_;
  RuntimeValue x_;
  PrepareRequest request_;
  std::vector<RuntimeValuePtr> outputs_;
};

TEST_F(PrepareTest, WhatIsRefusedChangesNothing) {
  const struct {
    const char* words;
    Prepare call;
  } cases[] = {
      {"has a negative dimension",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output(ctx, 0, BP_FLOAT, 2, kNegative); }},
      {"rank 1000000000",
       [](bp_prepare_ctx* ctx) {
         return ctx->api->set_output(ctx, 0, BP_FLOAT, 1000000000, kTwo);
       }},
      {"rank 65",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output(ctx, 0, BP_FLOAT, 65, kTwo); }},
      {"element type 99",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output(ctx, 0, 99, 1, kTwo); }},
      {"rank -7",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_unknown(ctx, 0, BP_FLOAT, -7); }},
      {"rank 1000",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_unknown(ctx, 0, BP_FLOAT, 1000); }},
      {"element type 99",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_unknown(ctx, 0, 99, 1); }},
      {"element type 0",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_unknown(ctx, 0, BP_NONE, 1); }},
      {"the type of output 0 is NULL",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_type(ctx, 0, nullptr); }},
      {"seq(",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_type(ctx, 0, "seq(tensor("); }},
      {"'tensor(float)' is no sequence, optional or map",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_output_type(ctx, 0, "tensor(float)"); }},
      {"format 0 is the plain one",
       [](bp_prepare_ctx* ctx) { return ctx->api->set_format(ctx, 0, BP_FORMAT_PLAIN, 16, 64); }}};
  for (const auto& one : cases) expect_words(said_of(one.call), one.words);
  EXPECT_EQ(said_of([](bp_prepare_ctx* ctx) {
              return ctx->api->set_output_type(ctx, 1, "seq(tensor(float))");
            }),
            "success");
}

TEST_F(PrepareTest, StructsThatAreNotUnderstoodAreRefused) {
  bp_pack_request pack = sdk::abi_struct<bp_pack_request>();
  pack.key = "key";
  pack.bytes = 16;
  pack.alignment = 64;
  pack.pack = [](void*, const bp_pack_ctx*) { return static_cast<bp_status*>(nullptr); };
  std::uint32_t index = 0;
  const auto request = [&](const bp_pack_request* made, std::uint32_t* out) {
    return [made, out](bp_prepare_ctx* ctx) { return ctx->api->request_pack(ctx, made, out); };
  };
  expect_words(said_of(request(nullptr, &index)), "a pack request is NULL");
  expect_words(said_of(request(&pack, nullptr)), "the pointer for the index is NULL");
  bp_pack_request wrong = pack;
  wrong.struct_size = 8;
  expect_words(said_of(request(&wrong, &index)), "a pack request: its struct_size is 8");
  wrong = pack;
  wrong.input_count = 2;
  expect_words(said_of(request(&wrong, &index)), "are said to be 2, but are NULL");
  wrong = pack;
  wrong.struct_flags = 1u << 16;
  expect_words(said_of(request(&wrong, &index), Code::Unimplemented), "uses a feature");

  bp_cost cost = sdk::abi_struct<bp_cost>();
  const auto set_cost = [](const bp_cost* made) {
    return [made](bp_prepare_ctx* ctx) { return ctx->api->set_cost(ctx, made); };
  };
  EXPECT_EQ(said_of(set_cost(&cost)), "success");
  expect_words(said_of(set_cost(nullptr)), "a cost is NULL");
  cost.struct_flags = 1u << 31;
  expect_words(said_of(set_cost(&cost), Code::Unimplemented), "a cost uses a feature");
}

TEST_F(PrepareTest, OnlyUnknownSizesAreTold) {
  const bp_tensor* out = nullptr;
  const auto allocate = [&](std::uint32_t output, std::int32_t rank) {
    return [&out, output, rank](const bp_kctx* ctx) {
      static constexpr std::int64_t kDims[64] = {2, 3};
      return ctx->api->alloc_output(ctx, output, rank, kDims, &out);
    };
  };
  EXPECT_EQ(computed(2, allocate(0, 2)), "success");
  EXPECT_EQ(outputs_[0]->dims, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(computed(-1, allocate(0, 1)), "success");
  EXPECT_EQ(outputs_[0]->dims, (std::vector<std::int64_t>{2}));
  expect_words(computed(2, allocate(0, 1)), "has rank 1, but `prepare` said 2");
  expect_words(computed(-1, allocate(0, 65)), "rank 65");
  expect_words(computed(-1, allocate(1, 1)), "output 1 is left out by the node");
  expect_words(computed(-1, allocate(9, 1)), "output 9 does not exist");
  expect_words(
      computed(1,
               [](const bp_kctx* ctx) { return ctx->api->alloc_output(ctx, 0, 1, kTwo, nullptr); }),
      "the pointer for the result is NULL");
  const auto twice = [&](const bp_kctx* ctx) {
    sdk::check(ctx->api->alloc_output(ctx, 0, 1, kTwo, &out));
    return ctx->api->alloc_output(ctx, 0, 1, kTwo, &out);
  };
  expect_words(computed(1, twice), "output 0 was allocated already");
  EXPECT_EQ(computed(1, [](const bp_kctx*) { return static_cast<bp_status*>(nullptr); }),
            "kernel 'plain:relu' returned success, but never gave output 0 its size "
            "(alloc_output)");
}

TEST_F(PrepareTest, AKnownSizeIsNotToldAgain) {
  request_.wanted_outputs = {true};
  prepare_function = [](bp_prepare_ctx* ctx) {
    return ctx->api->set_output(ctx, 0, BP_FLOAT, 1, kTwo);
  };
  compute_function = [](const bp_kctx* ctx) {
    const bp_tensor* out = nullptr;
    return ctx->api->alloc_output(ctx, 0, 1, kTwo, &out);
  };
  const PrepareResult result = prepare_kernel(request_);
  outputs_ = *make_host_outputs(result, request_.wanted_outputs, 1024);
  try {
    compute_on_host(result, *device_, &threads_, nullptr, request_.inputs, outputs_, {});
    ADD_FAILURE() << "it was allocated";
  } catch (const Error& error) {
    expect_words(error.message(), "the size of output 0 is known");
  }
}

}  // namespace
}  // namespace backplane::core
