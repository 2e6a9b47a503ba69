#include "plugins/cuda/tile_products.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/types.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

/// The first word of an algorithm that is the kernel's; another number when kept ones are to be chosen anew.
constexpr std::uint64_t kTileMark = 0x6261636b74696c33;

bool is_tiled(const ProductAlgorithm& algorithm) { return algorithm.words[0] == kTileMark; }

/// Copies of boxes want steps of 16 bytes, and places in kernels are ints.
bool takes_step(std::int64_t step) {
  constexpr std::int64_t kTogether = 8, kMost = std::int64_t{1} << 30;
  return step % kTogether == 0 && step >= 0 && step <= kMost;
}
bool takes_size(std::int64_t size) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  return size >= 1 && size <= kMost;
}

class PreparedTileProduct final : public PreparedProduct {
 public:
  PreparedTileProduct(Device& device, const TileProduct& product, const TileForm& form,
                      double factor, double addend_factor)
      : context_(device.context()),
        kernel_(device, form, product.text, product.sizes),
        product_(product),
        form_(form),
        factor_(factor),
        addend_factor_(addend_factor) {}

  void enqueue(KernelQueue& queue, const ProductAddresses& at) const override {
    const TileProduct& p = product_;
    const auto [rows, columns, depth, count] = p.sizes;
    constexpr std::int64_t kBlock = TileForm::kBlockRows;
    TileOperands operands;
    // The library's a is the right matrix, its b the left one.
    operands.a = boxes(at.b, depth, rows, p.a_step, p.a_matrix, form_.rows());
    operands.b = p.text.is_apart ? boxes(at.a, depth, columns, p.b_step, p.b_matrix, form_.columns)
                                 : boxes(at.a, columns, depth, p.b_step, p.b_matrix, kBlock);
    operands.made = matrices(at.d, columns, rows, p.y_step, p.y_matrix, form_.result_rows());
    operands.added = operands.made;
    if (p.text.has_addend) operands.added.address = at.c;
    operands.y = context_.describe(operands.made);
    operands.c = operands.added.address != operands.made.address ? context_.describe(operands.added)
                                                                 : operands.y;
    operands.bias = p.has_bias ? at.bias : at.d;
    operands.bias_step = p.bias_matrix;
    operands.a_moves = p.a_matrix > 0;
    operands.b_moves = p.b_matrix > 0;
    operands.has_bias = p.has_bias;
    operands.b_is_constant = at.a_is_constant;
    operands.factor = factor_;
    operands.addend_factor = addend_factor_;
    kernel_.enqueue(queue, operands);
  }

 private:
  BoxedMatrices matrices(Address address, std::int64_t columns, std::int64_t rows,
                         std::int64_t step, std::int64_t matrix_step, std::int64_t box_rows) const {
    BoxedMatrices made = boxed_matrix(address, product_.text.type, columns, rows, step, box_rows);
    if (matrix_step > 0) {
      made.matrices = product_.sizes.matrices;
      made.matrix_step = matrix_step;
    }
    return made;
  }
  BoxMap boxes(Address address, std::int64_t columns, std::int64_t rows, std::int64_t step,
               std::int64_t matrix_step, std::int64_t box_rows) const {
    return context_.describe(matrices(address, columns, rows, step, matrix_step, box_rows));
  }

  Context& context_;
  TileKernel kernel_;
  TileProduct product_;
  TileForm form_;
  double factor_, addend_factor_;
};

class TileProducts final : public ProductLibrary {
 public:
  TileProducts(Device& device, std::unique_ptr<ProductLibrary> library)
      : device_(device), library_(std::move(library)) {}

  std::string version() override { return library_->version(); }

  std::vector<ProductAlgorithm> propose(const LibraryProduct& product,
                                        std::uint64_t workspace_limit) override {
    std::vector<ProductAlgorithm> proposed = library_->propose(product, workspace_limit);
    std::vector<ProductAlgorithm> own;
    for (const TileForm& form : forms_for(product)) own.push_back(to_algorithm(form));
    proposed.insert(proposed.empty() ? proposed.begin() : proposed.begin() + 1, own.begin(),
                    own.end());
    return proposed;
  }

  bool serves(const LibraryProduct& product, ProductAlgorithm& algorithm) override {
    if (!is_tiled(algorithm)) return library_->serves(product, algorithm);
    const std::vector<TileForm> forms = forms_for(product);
    algorithm.workspace_bytes = 0;
    return std::find(forms.begin(), forms.end(), TileForm::of(algorithm.words[1])) != forms.end();
  }

  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& product,
                                                 const ProductAlgorithm& algorithm, double factor,
                                                 double addend_factor) override {
    if (!is_tiled(algorithm)) return library_->prepare(product, algorithm, factor, addend_factor);
    const std::optional<TileProduct> tiled = TileProduct::of(product, device_.traits());
    if (!tiled) throw sdk::Error(BP_INTERNAL, "a product of other rows than its algorithm is for");
    return std::make_unique<const PreparedTileProduct>(
        device_, *tiled, TileForm::of(algorithm.words[1]), factor, addend_factor);
  }

  void make_ready(const LibraryProduct& product) override {
    library_->make_ready(product);
    try {
      for (const TileForm& form : forms_for(product)) prepare(product, to_algorithm(form), 1, 1);
    } catch (const sdk::Error&) {
      // It is found again where the form is tried, which is then no way.
    }
  }

  std::string own_way(const ProductAlgorithm& algorithm) override {
    return is_tiled(algorithm) ? way_of(TileForm::of(algorithm.words[1]))
                               : library_->own_way(algorithm);
  }

 private:
  std::vector<TileForm> forms_for(const LibraryProduct& product) const {
    const std::optional<TileProduct> tiled = TileProduct::of(product, device_.traits());
    if (!tiled || !tiled->is_worthwhile()) return {};
    return tile_forms(tiled->sizes, device_.traits().multiprocessors, kMostTileForms);
  }

  Device& device_;
  std::unique_ptr<ProductLibrary> library_;
};

}  // namespace

std::optional<TileProduct> TileProduct::of(const LibraryProduct& product,
                                           const DeviceTraits& traits) {
  const LibraryMatrix &b = product.a, &a = product.b, &y = product.d;
  if (!has_tiles(traits) || !device_ops::is_half(b.type) || a.type != b.type || y.type != b.type)
    return std::nullopt;
  // The library's columns are what lies together: of its transposed a those of one row of the result lie together.
  if (a.is_transposed || product.alignment % kLibraryAlignment != 0) return std::nullopt;
  TileProduct made;
  made.sizes = {y.columns, y.rows, b.is_transposed ? b.rows : b.columns, product.batch};
  made.text = {b.type, b.is_transposed, false, product.epilogue, product.has_addend};
  made.a_step = a.step;
  made.b_step = b.step;
  made.y_step = y.step;
  if (product.batch > 1) {
    made.a_matrix = a.batch_step;
    made.b_matrix = b.batch_step;
    made.y_matrix = y.batch_step;
    made.bias_matrix = product.bias_batch_step;
  }
  made.has_bias = product.has_bias;
  for (const std::int64_t step : {made.a_step, made.a_matrix, made.b_step, made.b_matrix,
                                  made.y_step, made.y_matrix, made.bias_matrix}) {
    if (!takes_step(step)) return std::nullopt;
  }
  const TileSizes& sizes = made.sizes;
  for (const std::int64_t size : {sizes.rows, sizes.columns, sizes.depth, sizes.matrices}) {
    if (!takes_size(size)) return std::nullopt;
  }
  // Results of several matrices lie apart, and biases are read two at a time.
  if ((sizes.matrices > 1 && made.y_matrix == 0) || sizes.columns % 2 != 0) return std::nullopt;
  constexpr TileForm kSmallest{TileForm::kBlockRows, 1, 1, 1};
  if (kSmallest.tiles(sizes) > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return made;
}

bool TileProduct::is_worthwhile() const {
  constexpr std::int64_t kLeastRows = 64, kLeastProducts = std::int64_t{1} << 25;
  return sizes.rows >= kLeastRows &&
         sizes.rows * sizes.columns * sizes.depth * sizes.matrices >= kLeastProducts;
}

ProductAlgorithm to_algorithm(const TileForm& form) {
  return {{kTileMark, form.word(), 0, 0, 0, 0, 0, 0}, 0};
}

std::unique_ptr<ProductLibrary> with_tile_products(Device& device,
                                                   std::unique_ptr<ProductLibrary> library) {
  return std::make_unique<TileProducts>(device, std::move(library));
}

}  // namespace backplane::cuda
