#include "tests/cuda/warpgroup_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "backplane/plugin.hpp"
#include "plugins/common/half.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
namespace {

constexpr unsigned kRows = 64, kDepth = 16, kMostColumns = 256;

/// Where an item's `i`th sum is among those of 64 lines.
std::size_t place_of(unsigned item, unsigned i, unsigned columns) {
  const unsigned row = item / 32 * 16 + item % 32 / 4 + i / 2 % 2 * 8;
  const unsigned column = i / 4 * 8 + item % 4 * 2 + i % 2;
  return std::size_t{row} * columns + column;
}

/// A matrix in local memory:
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout
struct Descriptor {
  std::uint32_t at = 0, leading = 0, stride = 0;

  explicit Descriptor(std::uint64_t bits)
      : at(field(bits, 0)), leading(field(bits, 16)), stride(field(bits, 32)) {
    constexpr std::uint64_t kOthers = ~(std::uint64_t{0x3fff} << 32 | 0x3fff3fff);
    constexpr std::uint64_t kOfLines128 = std::uint64_t{1} << 62;
    if ((bits & kOthers) != kOfLines128 && Watch::all().fault.empty())
      Watch::all().fault = "a matrix is described of which no lines of 128 bytes are swizzled";
  }
  /// Of lines along the depth, eight of which are `stride` bytes from the next eight.
  std::uint32_t along_depth(unsigned line, unsigned k) const {
    return swizzled(at + line / 8 * stride + line % 8 * 128 + k * 2);
  }
  /// Of lines along the columns, 64 of which are `leading` bytes from the next.
  std::uint32_t along_columns(unsigned column, unsigned k) const {
    return swizzled(at + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2);
  }

 private:
  static std::uint32_t field(std::uint64_t bits, int from) {
    return static_cast<std::uint32_t>(bits >> from & 0x3fff) << 4;
  }
};

/// Numbers by their 16 bits.
const float* numbers_of(bool is_half) {
  constexpr std::size_t kCount = 1 << 16;
  static const std::vector<float> halves = [] {
    std::vector<float> made(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      made[i] = common::to_float(common::Half{static_cast<std::uint16_t>(i)});
    return made;
  }();
  static const std::vector<float> others = [] {
    std::vector<float> made(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      made[i] = common::to_float(common::BFloat16{static_cast<std::uint16_t>(i)});
    return made;
  }();
  return is_half ? halves.data() : others.data();
}

}  // namespace

const Warpgroup::Form& Warpgroup::form_of(const char* instruction) {
  static std::map<std::string, Form> forms;
  const auto [found, is_new] = forms.try_emplace(instruction);
  if (!is_new) return found->second;
  // What may be said of both matrices and the sums is said by numbers: the factors, which are 1 or -1, and what is transposed.
  const char* const begin = std::strstr(instruction, "wgmma.mma_async.sync.aligned.m64n");
  const char* const end = std::strstr(instruction, ", p, ");
  char types[2][8] = {};
  int factors[2] = {}, transposed[2] = {};
  Form& form = found->second;
  const bool is_read =
      begin != nullptr && end != nullptr &&
      std::sscanf(begin, "wgmma.mma_async.sync.aligned.m64n%uk16.f32.%7[bf16].%7[bf16] {",
                  &form.columns, types[0], types[1]) == 3 &&
      std::sscanf(end, ", p, %d, %d, %d, %d;", &factors[0], &factors[1], &transposed[0],
                  &transposed[1]) == 4;
  if (!is_read || std::strcmp(types[0], types[1]) != 0 || factors[0] != 1 || factors[1] != 1 ||
      transposed[0] != 0 || form.columns % 8 != 0 || form.columns > kMostColumns)
    Fibers::all().stop(sdk::message("no product of a warpgroup: ", instruction));
  form.is_half = std::strcmp(types[0], "f16") == 0;
  form.is_transposed = transposed[1] != 0;
  return form;
}

/// Those that the item's are of, or such that nobody has.
Warpgroup::Sums* Warpgroup::sums_at(float* place) {
  Sums* unused = nullptr;
  for (const std::unique_ptr<Sums>& each : sums_) {
    if (each->products > 0 && each->places[lane()] == place) return each.get();
    if (each->products == 0) unused = each.get();
  }
  if (unused != nullptr) return unused;
  return sums_.emplace_back(std::make_unique<Sums>()).get();
}

void Warpgroup::take(Sums& sums, float* place, unsigned columns) {
  if (!states_[lane()].is_ordered) Fibers::all().stop("sums are added to that are not in order");
  sums.places[lane()] = place;
  sums.values.resize(std::size_t{kRows} * columns);
  for (unsigned i = 0; i < columns / 2; ++i) {
    sums.values[place_of(lane(), i, columns)] = place[i];
    place[i] = std::nanf("");
  }
}

void Warpgroup::multiply(const char* instruction, float* sums, std::uint64_t a, std::uint64_t b,
                         bool adds) {
  const std::uint64_t number = states_[lane()].begun++ - done_;
  if (number == products_.size()) {
    products_.push_back({form_of(instruction), instruction, a, b, adds, sums_at(sums)});
    ++products_.back().sums->products;
  }
  const Product& product = products_[number];
  if (product.a != a || product.b != b || product.adds != adds ||
      std::strcmp(product.instruction, instruction) != 0)
    Fibers::all().stop("items of a warpgroup do not multiply the same");
  float*& place = product.sums->places[lane()];
  if (place == nullptr)
    take(*product.sums, sums, product.form.columns);
  else if (place != sums)
    Fibers::all().stop("items of a warpgroup do not add to the same sums");
}

void Warpgroup::commit() { states_[lane()].committed.push_back(states_[lane()].begun); }

void Warpgroup::await(unsigned but) {
  State& state = states_[lane()];
  state.is_ordered = false;
  if (state.committed.size() <= but) return;
  state.awaited = state.committed[state.committed.size() - 1 - but];
  Fibers& fibers = Fibers::all();
  fibers.wait({[](const Wait& wait) {
                 return Warpgroups::all().team(wait.group, wait.item).has_done(wait.number);
               },
               "for products", fibers.group(), fibers.item(), state.awaited, 0});
  state.awaited = 0;
}

bool Warpgroup::go_on(const GroupMemory& memory) {
  const State& first = states_[0];
  for (const State& each : states_) {
    if (each.awaited <= done_ || each.awaited != first.awaited || each.begun != first.begun)
      return false;
  }
  for (; done_ < first.awaited; ++done_) {
    const Product& product = products_.front();
    compute(product, memory);
    if (--product.sums->products == 0) give_back(*product.sums, product.form.columns);
    products_.pop_front();
  }
  return true;
}

void Warpgroup::give_back(Sums& sums, unsigned columns) {
  for (unsigned item = 0; item < kItems; ++item) {
    for (unsigned i = 0; i < columns / 2; ++i)
      sums.places[item][i] = sums.values[place_of(item, i, columns)];
    sums.places[item] = nullptr;
  }
}

void Warpgroup::compute(const Product& product, const GroupMemory& memory) {
  constexpr unsigned kTogether = 8;
  const float* const numbers = numbers_of(product.form.is_half);
  const unsigned columns = product.form.columns;
  static float right[kDepth][kMostColumns];
  const Descriptor a(product.a), b(product.b);
  for (unsigned k = 0; k < kDepth; ++k) {
    for (unsigned column = 0; column < columns; ++column)
      right[k][column] = numbers[memory.element(
          product.form.is_transposed ? b.along_columns(column, k) : b.along_depth(column, k))];
  }
  if (!product.adds) std::fill(product.sums->values.begin(), product.sums->values.end(), 0.0f);
  for (unsigned row = 0; row < kRows; ++row) {
    float* const sums = product.sums->values.data() + std::size_t{row} * columns;
    for (unsigned k = 0; k < kDepth; ++k) {
      const float left = numbers[memory.element(a.along_depth(row, k))];
      for (unsigned column = 0; column < columns; column += kTogether) {
        for (unsigned i = 0; i < kTogether; ++i) sums[column + i] += left * right[k][column + i];
      }
    }
  }
}

}  // namespace backplane::cuda
