#include "plugins/cuda/row_products.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

using device_ops::LaunchPlan;
using device_ops::MemoryRef;
using device_ops::RowProduct;
using device_ops::RowProductForm;

/// The first word of an algorithm that is the kernel's; another number when kept ones are to be chosen anew.
constexpr std::uint64_t kOwnMark = 0x6261636b726f7731;

/// Below, a product is over before it matters who reads its matrix.
constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 20;

bool is_own(const ProductAlgorithm& algorithm) { return algorithm.words[0] == kOwnMark; }

RowProductForm form_of(const ProductAlgorithm& algorithm) {
  const auto number = [&](std::size_t at) {
    return static_cast<std::int64_t>(algorithm.words[at]);
  };
  RowProductForm form;
  form.across = number(1);
  form.lanes = number(2);
  form.items = number(3);
  form.per = number(4);
  form.unrolled = number(5);
  form.parts = number(6);
  return form;
}

/// Whether the kernel comes first where nothing is measured: for a lone row whose matrix is read 16 bytes at a time, of enough columns
/// and depth.
bool is_first_by_rule(const RowProduct& product, std::uint32_t alignment) {
  constexpr std::int64_t kLeastColumns = 64, kLeastDepth = 64;
  constexpr std::uint64_t kLeastOfOne = kLeastBytes / 4;
  return product.rows == 1 && product.is_wide() && alignment % kLibraryAlignment == 0 &&
         product.columns >= kLeastColumns && product.depth >= kLeastDepth &&
         product.matrix_bytes() / static_cast<std::uint64_t>(product.matrices) >= kLeastOfOne;
}

/// What the kernel is proposed for.
std::optional<RowProduct> large_row_product(const LibraryProduct& product) {
  std::optional<RowProduct> made = to_row_product(product);
  if (made && made->matrix_bytes() < kLeastBytes) made.reset();
  return made;
}

/// Where the kernel's operands are, by place and number.
device_ops::RowProductMemory memory_of_operands() {
  return {device_ops::input(0), device_ops::input(1),  device_ops::input(2),
          device_ops::input(3), device_ops::output(0), device_ops::workspace()};
}

Address address_in(const ProductAddresses& at, const MemoryRef& ref) {
  if (ref.place == device_ops::Place::Output) return at.d;
  if (ref.place == device_ops::Place::Workspace) return at.workspace;
  // The library's a is the matrix, its b the rows.
  const std::array<Address, 4> inputs{at.b, at.a, at.c, at.bias};
  return inputs[ref.index];
}

class PreparedRowProduct final : public PreparedProduct {
 public:
  PreparedRowProduct(ModuleStore& modules, const device_ops::Work& work) {
    for (const device_ops::Work::Step& step : work.steps()) {
      const auto& plan = std::get<LaunchPlan>(step);
      Launch& launch = launches_.emplace_back(Launch{modules.get(plan.source), {}, plan.scalars});
      for (const LaunchPlan::MemoryArgument& each : plan.memory)
        launch.memory.push_back(each.memory);
      for (std::size_t d = 0; d < 3; ++d) {
        launch.group[d] = static_cast<unsigned>(plan.group[d]);
        launch.groups[d] = static_cast<unsigned>(plan.items[d] / plan.group[d]);
      }
    }
  }

  void enqueue(KernelQueue& queue, const ProductAddresses& at) const override {
    for (const Launch& launch : launches_) {
      LaunchArguments arguments;
      for (const MemoryRef& ref : launch.memory) arguments.tensor(address_in(at, ref));
      for (const device_ops::Scalar& scalar : launch.scalars)
        std::visit([&](const auto& value) { arguments.add(value); }, scalar);
      queue.launch(*launch.kernel, launch.groups, launch.group, arguments.finish());
    }
  }

 private:
  struct Launch {
    std::shared_ptr<const Kernel> kernel;
    std::vector<MemoryRef> memory;
    std::vector<device_ops::Scalar> scalars;
    Extent groups{}, group{};
  };

  std::vector<Launch> launches_;
};

class RowProducts final : public ProductLibrary {
 public:
  RowProducts(Device& device, std::unique_ptr<ProductLibrary> library)
      : device_(device),
        library_(std::move(library)),
        traits_{device.traits().multiprocessors, device.traits().memory_bytes_per_ns} {}

  std::string version() override { return library_->version(); }

  std::vector<ProductAlgorithm> propose(const LibraryProduct& product,
                                        std::uint64_t workspace_limit) override {
    std::vector<ProductAlgorithm> proposed = library_->propose(product, workspace_limit);
    const std::optional<RowProduct> rows = large_row_product(product);
    if (!rows) return proposed;
    const bool is_first = proposed.empty() || is_first_by_rule(*rows, product.alignment);
    std::vector<ProductAlgorithm> own;
    for (const RowProductForm& form : device_ops::row_product_forms(*rows, traits_))
      own.push_back(to_algorithm(*rows, form));
    proposed.insert(is_first ? proposed.begin() : proposed.begin() + 1, own.begin(), own.end());
    return proposed;
  }

  bool serves(const LibraryProduct& product, ProductAlgorithm& algorithm) override {
    if (!is_own(algorithm)) return library_->serves(product, algorithm);
    const std::optional<RowProduct> rows = to_row_product(product);
    if (!rows) return false;
    const std::vector<RowProductForm> forms = device_ops::row_product_forms(*rows, traits_);
    const RowProductForm form = form_of(algorithm);
    algorithm.workspace_bytes = form.workspace_bytes(*rows);
    return std::find(forms.begin(), forms.end(), form) != forms.end();
  }

  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& product,
                                                 const ProductAlgorithm& algorithm, double factor,
                                                 double addend_factor) override {
    if (!is_own(algorithm)) return library_->prepare(product, algorithm, factor, addend_factor);
    std::optional<RowProduct> rows = to_row_product(product);
    if (!rows) throw sdk::Error(BP_INTERNAL, "a product of other rows than its algorithm is for");
    rows->factor = factor;
    rows->addend_factor = addend_factor;
    device_ops::Work work(device_, "product");
    add_row_product(work, *rows, form_of(algorithm), memory_of_operands());
    return std::make_unique<const PreparedRowProduct>(device_.modules(), work);
  }

  void make_ready(const LibraryProduct& product) override {
    const std::optional<RowProduct> rows = large_row_product(product);
    if (!rows) return;
    try {
      for (const RowProductForm& form : device_ops::row_product_forms(*rows, traits_))
        prepare(product, to_algorithm(*rows, form), 1, 1);
    } catch (const sdk::Error&) {
      // It is found again where the form is tried, which is then no way.
    }
  }

  std::string own_way(const ProductAlgorithm& algorithm) override {
    if (!is_own(algorithm)) return "";
    const std::int64_t parts = form_of(algorithm).parts;
    return parts == 1 ? "few rows" : sdk::message("few rows in ", parts, " parts");
  }

 private:
  Device& device_;
  std::unique_ptr<ProductLibrary> library_;
  device_ops::RowProductDevice traits_;
};

}  // namespace

std::optional<RowProduct> to_row_product(const LibraryProduct& product) {
  constexpr std::int64_t kMostMatrices = 65535;  // groups along z
  const LibraryMatrix &matrix = product.a, &rows = product.b, &y = product.d;
  const sdk::DataType type = matrix.type;
  const bool is_float = type == sdk::DataType::Float || type == sdk::DataType::Float16 ||
                        type == sdk::DataType::BFloat16;
  if (!is_float || rows.type != type || y.type != type) return std::nullopt;
  if (y.columns > device_ops::kMostProductRows || product.batch > kMostMatrices)
    return std::nullopt;
  RowProduct made;
  made.type = type;
  made.rows = y.columns;
  made.columns = y.rows;
  made.depth = matrix.is_transposed ? matrix.rows : matrix.columns;
  made.matrices = product.batch;
  // The library's columns are what lies together: [depth][columns] is its matrix of depth columns.
  made.is_apart = matrix.is_transposed;
  made.b_step = matrix.step;
  made.b_matrix = matrix.batch_step;
  made.a_k = rows.is_transposed ? rows.step : 1;
  made.a_row = rows.is_transposed ? 1 : rows.step;
  made.a_matrix = rows.batch_step;
  made.y_row = y.step;
  made.y_matrix = y.batch_step;
  made.bias_matrix = product.bias_batch_step;
  made.has_addend = product.has_addend;
  made.has_bias = product.has_bias;
  made.activation = activated(made.activation, product.epilogue);
  if (made.depth < 1 || made.columns < 1 || made.rows < 1) return std::nullopt;
  return made;
}

ProductAlgorithm to_algorithm(const RowProduct& product, const RowProductForm& form) {
  const auto word = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  return {{kOwnMark, word(form.across), word(form.lanes), word(form.items), word(form.per),
           word(form.unrolled), word(form.parts), 0},
          form.workspace_bytes(product)};
}

std::unique_ptr<ProductLibrary> with_row_products(Device& device,
                                                  std::unique_ptr<ProductLibrary> library) {
  return std::make_unique<RowProducts>(device, std::move(library));
}

}  // namespace backplane::cuda
