// The tuner of the OpenCL provider: what it chooses, keeps and takes again, and that every way it may choose is right.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>

#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

using Dims = std::vector<std::int64_t>;

/// An entry that says what was chosen: see ProgramCache.
struct Entry {
  std::string key, choice;

  std::vector<std::string> ways() const {
    std::vector<std::string> names;
    const std::string mark = "\nway ";
    for (std::size_t at = key.find(mark); at != std::string::npos; at = key.find(mark, at)) {
      at += mark.size();
      names.push_back(key.substr(at, key.find(':', at) - at));
    }
    return names;
  }
};

constexpr char kMagic[] = "backplane choice 1\n";

std::string number_bytes(std::uint64_t number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

std::string bytes_of(const Entry& entry) {
  std::uint64_t sum = 0xCBF29CE484222325u;
  for (const char byte : entry.choice)
    sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return kMagic + number_bytes(entry.key.size()) + entry.key + number_bytes(entry.choice.size()) +
         number_bytes(sum) + entry.choice;
}

Entry entry_of(const std::string& bytes) {
  std::uint64_t size = 0;
  const std::size_t magic = std::strlen(kMagic);
  if (bytes.size() < magic + sizeof(size) || bytes.substr(0, magic) != kMagic) return {};
  std::memcpy(&size, bytes.data() + magic, sizeof(size));
  const std::size_t key = magic + sizeof(size), choice = key + size + 2 * sizeof(size);
  if (bytes.size() < choice) return {};
  return {bytes.substr(key, size), bytes.substr(choice)};
}

std::vector<std::filesystem::path> choices_in(const TestFolder& folder) {
  std::vector<std::filesystem::path> all;
  for (const std::filesystem::path& path : folder.files()) {
    if (path.extension() == ".choice") all.push_back(path);
  }
  return all;
}

std::int64_t count_of(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

/// Small whole numbers, so that sums are exact in any order.
template <class T>
HostTensor numbers(bp_dtype dtype, const Dims& dims, int seed, int lowest = -5) {
  std::vector<T> values(static_cast<std::size_t>(count_of(dims)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<T>((static_cast<int>(i) * 7 + static_cast<int>(i / 11) + seed) % 11 + lowest);
  return tensor<T>(dtype, dims, values);
}

double element(const HostTensor& tensor, std::int64_t at) {
  const unsigned char* const byte =
      tensor.data.data() + static_cast<std::uint64_t>(at) * element_bytes(tensor.dtype);
  if (tensor.dtype == BP_UINT8) return *byte;
  if (tensor.dtype == BP_INT8) return static_cast<signed char>(*byte);
  float value = 0;
  std::memcpy(&value, byte, sizeof(value));
  return value;
}

/// A node with its inputs and what is right.
struct Case {
  std::string op_type;
  int since_version = 1;
  std::vector<HostTensor> inputs;
  bool has_constant = false;  ///< input 1
  std::function<void(NodeUnderTest&)> describe = [](NodeUnderTest&) {};
  std::vector<double> right = {};
};

void PrintTo(const Case& node, std::ostream* out) { *out << node.op_type; }

Case matmul(const char* op_type, const Dims& a, const Dims& b, bool is_constant) {
  const bool is_float = std::string(op_type) == "MatMul";
  Case node{op_type, is_float ? 13 : 10, {}, is_constant};
  node.inputs = {
      is_float ? numbers<float>(BP_FLOAT, a, 1) : numbers<std::uint8_t>(BP_UINT8, a, 1, 0),
      is_float ? numbers<float>(BP_FLOAT, b, 4) : numbers<std::int8_t>(BP_INT8, b, 4)};
  const std::int64_t depth = a.back(), columns = b.back(), rows = count_of(a) / depth;
  const std::int64_t of_one = b.size() == 2 ? rows : a[a.size() - 2];  // rows of one matrix of b
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += element(node.inputs[0], row * depth + k) *
               element(node.inputs[1], (row / of_one * depth + k) * columns + column);
      node.right.push_back(sum);
    }
  }
  return node;
}

/// x * transposed w + bias.
Case gemm(std::int64_t rows, std::int64_t columns, std::int64_t depth, bool is_constant) {
  Case node{"Gemm", 13, {}, is_constant};
  node.inputs = {numbers<float>(BP_FLOAT, {rows, depth}, 2),
                 numbers<float>(BP_FLOAT, {columns, depth}, 3),
                 numbers<float>(BP_FLOAT, {columns}, 5)};
  node.describe = [](NodeUnderTest& raw) { raw.attribute("transB", std::int64_t{1}); };
  for (std::int64_t at = 0; at < rows * columns; ++at) {
    double sum = element(node.inputs[2], at % columns);
    for (std::int64_t k = 0; k < depth; ++k)
      sum += element(node.inputs[0], at / columns * depth + k) *
             element(node.inputs[1], at % columns * depth + k);
    node.right.push_back(sum);
  }
  return node;
}

struct ConvSizes {
  Dims x, w;
  std::int64_t stride = 1, pad = 0, groups = 1;
  std::int64_t out(std::size_t axis) const { return (x[axis] + 2 * pad - w[axis]) / stride + 1; }
};

/// One sum of a convolution.
double conv_sum(const Case& node, const ConvSizes& sizes, std::int64_t image, std::int64_t filter,
                std::int64_t row, std::int64_t column) {
  const Dims &x = sizes.x, &w = sizes.w;
  const std::int64_t first = filter / (w[0] / sizes.groups) * w[1];
  double sum = 0;
  for (std::int64_t at = 0; at < w[1] * w[2] * w[3]; ++at) {
    const std::int64_t c = at / (w[2] * w[3]);
    const std::int64_t v = row * sizes.stride - sizes.pad + at / w[3] % w[2];
    const std::int64_t u = column * sizes.stride - sizes.pad + at % w[3];
    if (v < 0 || v >= x[2] || u < 0 || u >= x[3]) continue;
    sum += element(node.inputs[0], ((image * x[1] + first + c) * x[2] + v) * x[3] + u) *
           element(node.inputs[1], filter * w[1] * w[2] * w[3] + at);
  }
  return sum;
}

Case conv(const char* op_type, const ConvSizes& sizes, bool is_constant) {
  const bool is_float = std::string(op_type) == "Conv";
  Case node{op_type, is_float ? 11 : 10, {}, is_constant};
  if (is_float) {
    node.inputs = {numbers<float>(BP_FLOAT, sizes.x, 1), numbers<float>(BP_FLOAT, sizes.w, 4),
                   numbers<float>(BP_FLOAT, {sizes.w[0]}, 2)};
  } else {
    node.inputs = {numbers<std::uint8_t>(BP_UINT8, sizes.x, 1, 0),
                   numbers<std::int8_t>(BP_INT8, sizes.w, 4)};
  }
  node.describe = [sizes](NodeUnderTest& raw) {
    raw.attribute("strides", Dims{sizes.stride, sizes.stride});
    raw.attribute("pads", Dims(4, sizes.pad)).attribute("group", sizes.groups);
  };
  const std::int64_t height = sizes.out(2), width = sizes.out(3);
  for (std::int64_t at = 0; at < sizes.x[0] * sizes.w[0] * height * width; ++at) {
    const std::int64_t filter = at / (height * width) % sizes.w[0];
    const double sum = conv_sum(node, sizes, at / (height * width) / sizes.w[0], filter,
                                at / width % height, at % width);
    node.right.push_back(sum + (is_float ? element(node.inputs[2], filter) : 0));
  }
  return node;
}

/// Puts a tensor's bytes into device memory and waits.
void upload_bytes(const OpenDevice& device, const TestStream& stream, const HostTensor& values,
                  Place to) {
  const HostTensor shape{BP_UINT8, {static_cast<std::int64_t>(values.data.size())}, {}};
  const TestBuffer staging(device, BP_MEMORY_PINNED, values.data.size());
  std::memcpy(staging.host(), values.data.data(), values.data.size());
  const Grown<bp_tensor> source = describe(shape, {nullptr, staging.raw()}),
                         target = describe(shape, to);
  check(device->copy(device.raw(), stream.raw(), &source.base, &target.base));
  stream.sync();
}

struct Result {
  std::string variant;
  double worst = 0;  ///< of the differences to what is right
};

/// Device memory of a node's tensors.
class Memory {
 public:
  explicit Memory(const OpenDevice& device) : device_(device) {}
  Place add(std::uint64_t bytes) {
    buffers_.push_back(std::make_unique<TestBuffer>(device_, BP_MEMORY_DEVICE, bytes + 16));
    return {nullptr, buffers_.back()->raw()};
  }

 private:
  const OpenDevice& device_;
  std::vector<std::unique_ptr<TestBuffer>> buffers_;
};

void pack(const PackPlan& plan, const std::vector<HostTensor>& inputs, Place to,
          const TestStream& stream) {
  std::vector<Grown<bp_tensor>> sources;
  for (const std::uint32_t input : plan.inputs) {
    sources.push_back(
        describe(inputs[input], {const_cast<unsigned char*>(inputs[input].data.data())}));
  }
  std::vector<const bp_tensor*> pointers;
  for (const Grown<bp_tensor>& source : sources) pointers.push_back(&source.base);
  const HostTensor shape{BP_UINT8, {static_cast<std::int64_t>(plan.bytes)}, {}};
  const Grown<bp_tensor> target = describe(shape, to);
  Grown<bp_pack_ctx> ctx;
  ctx.base.sources = pointers.data();
  ctx.base.source_count = pointers.size();
  ctx.base.target = &target.base;
  ctx.base.stream = stream.raw();
  check(plan.pack(plan.self, &ctx.base));
  stream.sync();
}

/// The kernel that a host takes: the last one of its operator.
const bp_kernel_def* kernel_of(const OpenDevice& device, const std::string& op_type) {
  std::vector<const bp_kernel_def*> all;
  check(device->kernels(device.raw(), &all, [](void* list, const bp_kernel_def* def) -> bp_status* {
    static_cast<std::vector<const bp_kernel_def*>*>(list)->push_back(def);
    return nullptr;
  }));
  const auto is_of = [&](const bp_kernel_def* def) { return def->op_type == op_type; };
  const auto found = std::find_if(all.rbegin(), all.rend(), is_of);
  return found == all.rend() ? device.kernel(op_type) : *found;
}

/// A session's life: the device is opened, the node prepared and computed.
Result run(const OpenClPlugin& opencl, const Case& node, const OpenDevice::Options& options) {
  const OpenDevice device(opencl.provider, 0, options);
  const TestStream stream(device);
  NodeUnderTest raw("", node.op_type, node.since_version);
  std::vector<bool> known;
  for (const HostTensor& input : node.inputs) {
    raw.input(input.dtype, input.dims);
    known.push_back(known.size() == 1 && node.has_constant);
  }
  raw.outputs(1);
  node.describe(raw);
  KernelUnderTest kernel(kernel_of(device, node.op_type), device.raw(), raw.raw());
  kernel.prepare(node.inputs, known, 1);
  Memory memory(device);
  std::vector<Place> inputs, packed;
  for (const HostTensor& input : node.inputs) {
    inputs.push_back(memory.add(input.data.size()));
    upload_bytes(device, stream, input, inputs.back());
  }
  for (const PackPlan& plan : kernel.packs()) {
    packed.push_back(memory.add(plan.bytes));
    pack(plan, node.inputs, packed.back(), stream);
  }
  const std::size_t count = node.right.size();
  const Place y = memory.add(count * sizeof(float));
  check(kernel.compute(inputs, {y}, packed, memory.add(kernel.workspace_bytes()), stream.raw()));
  const std::vector<float> found = download(device, stream, y, count);
  Result result{kernel.variant()};
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t whole = 0;
    std::memcpy(&whole, &found[i], sizeof(whole));
    const double value = kernel.outputs()[0].dtype == BP_INT32 ? whole : found[i];
    result.worst = std::max(result.worst, std::abs(value - node.right[i]));
    if (std::isnan(value)) result.worst = HUGE_VAL;
  }
  return result;
}

OpenDevice::Options tuned(const TestFolder& folder) {
  return {{"cache_dir", folder.path()}, {"tuning", "on"}};
}

const Case& small_product() {
  static const Case node = matmul("MatMul", {7, 13}, {13, 33}, false);
  return node;
}

TEST(OpenClTuning, AChoiceIsMadeKeptAndTakenByLaterSessions) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("tuning_keeps");
  const Result first = run(opencl, small_product(), tuned(folder));
  EXPECT_EQ(first.worst, 0);
  ASSERT_EQ(choices_in(folder).size(), 1u);
  const std::filesystem::path path = choices_in(folder)[0];
  const Entry made = entry_of(read_file(path));
  EXPECT_EQ(made.choice, first.variant);
  ASSERT_GT(made.ways().size(), 2u);
  // What is kept is taken, whatever it is, so nothing was measured; and nothing is written.
  for (const std::string& way : made.ways()) {
    write_file(path, bytes_of({made.key, way}));
    const auto written = std::filesystem::last_write_time(path);
    EXPECT_EQ(run(opencl, small_product(), tuned(folder)).variant, way);
    EXPECT_EQ(std::filesystem::last_write_time(path), written);
  }
  run(opencl, matmul("MatMul", {7, 13}, {13, 34}, false), tuned(folder));
  EXPECT_EQ(choices_in(folder).size(), 2u) << "another shape is another choice";
}

TEST(OpenClTuning, OffNeitherReadsNorWrites) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("tuning_off");
  const OpenDevice::Options off{{"cache_dir", folder.path()}};
  const std::string by_rule = run(opencl, small_product(), off).variant;
  EXPECT_TRUE(choices_in(folder).empty());
  run(opencl, small_product(), tuned(folder));
  ASSERT_EQ(choices_in(folder).size(), 1u);
  const Entry made = entry_of(read_file(choices_in(folder)[0]));
  ASSERT_GT(made.ways().size(), 1u);
  EXPECT_EQ(made.ways()[0], by_rule) << "the way by rule comes first";
  write_file(choices_in(folder)[0], bytes_of({made.key, made.ways()[1]}));
  EXPECT_EQ(run(opencl, small_product(), off).variant, by_rule);
}

TEST(OpenClTuning, IgnoresAndRewritesEntriesThatAreCutOffAlteredOrForeign) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("tuning_corrupt");
  run(opencl, small_product(), tuned(folder));
  ASSERT_EQ(choices_in(folder).size(), 1u);
  const std::filesystem::path path = choices_in(folder)[0];
  const std::string good = read_file(path);
  const Entry made = entry_of(good);
  std::string flipped = good, other_key = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  other_key[60] = static_cast<char>(other_key[60] ^ 1);
  for (const std::string& bad :
       {std::string(), good.substr(0, 10), good.substr(0, good.size() - 1), good + "x", flipped,
        other_key, std::string("something else"), bytes_of({made.key, "no such way"})}) {
    write_file(path, bad);
    const Result result = run(opencl, small_product(), tuned(folder));
    EXPECT_EQ(result.worst, 0);
    const Entry found = entry_of(read_file(path));
    EXPECT_EQ(found.key, made.key) << "the bad entry was kept, " << bad.size() << " bytes";
    EXPECT_EQ(found.choice, result.variant);
    EXPECT_EQ(choices_in(folder).size(), 1u) << "a temporary file was left";
  }
}

TEST(OpenClTuning, WorksWithoutAFolderAndOnOtherQueues) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(0);
  OpenDevice::Options users = callers.options();
  users.emplace_back("tuning", "on");
  for (const OpenDevice::Options& options :
       {OpenDevice::Options{{"cache_dir", "off"}, {"tuning", "on"}},
        OpenDevice::Options{{"cache_dir", "/proc/no_such_folder"}, {"tuning", "on"}},
        OpenDevice::Options{{"cache_dir", "off"}, {"tuning", "on"}, {"queue", "out_of_order"}},
        users})
    EXPECT_EQ(run(opencl, small_product(), options).worst, 0);
}

TEST(OpenClTuning, TilesOfTheOptionAloneAreTried) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  for (const std::string tiles : {"vector", "local"}) {
    const TestFolder folder("tuning_tiles_" + tiles);
    OpenDevice::Options options = tuned(folder);
    options.emplace_back("tiles", tiles);
    // So few columns that a work item for each sum is another way.
    EXPECT_EQ(run(opencl, matmul("MatMul", {17, 13}, {13, 16}, false), options).worst, 0);
    ASSERT_EQ(choices_in(folder).size(), 1u);
    for (const std::string& way : entry_of(read_file(choices_in(folder)[0])).ways())
      EXPECT_TRUE(way.find(tiles) == 0 || way == "dot") << way << " with tiles=" << tiles;
  }
}

/// Over odd shapes: what is left at the ends of rows and columns.
class TunedWays : public ::testing::TestWithParam<Case> {};

TEST_P(TunedWays, AreAllRight) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("tuning_ways");
  EXPECT_LT(run(opencl, GetParam(), tuned(folder)).worst, 0.01);
  ASSERT_EQ(choices_in(folder).size(), 1u);
  const std::filesystem::path path = choices_in(folder)[0];
  const Entry made = entry_of(read_file(path));
  EXPECT_GT(made.ways().size(), 1u);
  for (const std::string& way : made.ways()) {
    write_file(path, bytes_of({made.key, way}));
    const Result result = run(opencl, GetParam(), tuned(folder));
    EXPECT_EQ(result.variant, way);
    // Winograd's sums are not those of whole numbers.
    EXPECT_LE(result.worst, way.find("winograd") == 0 ? 0.01 : 0) << way;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TunedWays,
    ::testing::Values(matmul("MatMul", {29, 19}, {19, 83}, true),
                      matmul("MatMul", {1, 37}, {37, 101}, true),
                      matmul("MatMul", {3, 5, 9}, {3, 9, 67}, false), gemm(11, 70, 23, false),
                      gemm(13, 7, 23, true),
                      conv("Conv", {{2, 8, 9, 13}, {9, 8, 3, 3}, 1, 1}, true),
                      conv("Conv", {{1, 6, 11, 15}, {10, 3, 3, 3}, 2, 1, 2}, true),
                      conv("Conv", {{1, 5, 7, 11}, {13, 5, 1, 1}}, false),
                      matmul("MatMulInteger", {9, 21}, {21, 39}, true),
                      conv("ConvInteger", {{1, 4, 7, 9}, {5, 4, 3, 3}, 1, 1}, true)));

}  // namespace
}  // namespace backplane::test_host
