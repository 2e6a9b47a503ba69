#include "core/plan/weight_store.hpp"

#define XXH_INLINE_ALL
#include <algorithm>
#include <cstring>
#include <xxhash.h>

#include "core/base/mapped_file.hpp"
#include "core/graph/type.hpp"
#include "core/plugin_host/copy_mode.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

std::string hash_text(const ContentHash& hash) { return text(std::hex, hash.high, '.', hash.low); }

/// A constant on the host for a while: where it lies, or copied if it is not aligned there. What was copied is not
/// read again soon.
RuntimeValuePtr shown_on_host(const Constant& constant) {
  auto value = std::make_shared<RuntimeValue>();
  if (constant.lies_aligned()) {
    value->set_constant(constant);
  } else {
    const std::span<const std::byte> stored = constant.stored_bytes();
    const auto copy = std::make_shared_for_overwrite<std::byte[]>(stored.size());
    std::memcpy(copy.get(), stored.data(), stored.size());
    MappedFile::let_go(stored);
    value->set_tensor(constant.type(), constant.dims());
    value->description.host_ptr = copy.get();
    value->memory = copy;
  }
  return value;
}

/// A weight of `bytes` in the device's memory, described as a plain tensor.
std::shared_ptr<Weight> make_weight(const DevicePtr& device, DataType type,
                                    const std::vector<std::int64_t>& dims, std::uint64_t bytes,
                                    std::uint64_t alignment) {
  auto weight = std::make_shared<Weight>();
  weight->value.set_tensor(type, dims);
  weight->value.description.bytes = bytes;
  if (bytes > 0)
    weight->buffer = DeviceBuffer(device, BP_MEMORY_DEVICE, bytes,
                                  std::max(alignment, device->alignment(BP_MEMORY_DEVICE)));
  weight->value.description.buffer = weight->buffer.raw();
  weight->value.description.host_ptr = weight->buffer.host_ptr();
  weight->value.description.memory = device->on_host_memory() ? BP_MEMORY_HOST : BP_MEMORY_DEVICE;
  return weight;
}

/// The sources of a packing function.
struct Sources {
  std::vector<ConstantPtr> constants;
  std::vector<RuntimeValuePtr> values;
  std::vector<const bp_tensor*> tensors;

  Sources(const std::vector<ConstantRef>& refs, WeightStore& store, bp_threads* threads) {
    for (const ConstantRef& ref : refs) {
      constants.push_back(ref.get(store, threads));
      values.push_back(shown_on_host(*constants.back()));
      tensors.push_back(values.back()->tensor);
    }
  }
};

/// What was read to make something else of it is not read again soon.
void let_go(const std::vector<ConstantRef>& sources) {
  for (const ConstantRef& source : sources) {
    if (source.known != nullptr) MappedFile::let_go(source.known->stored_bytes());
  }
}

bp_pack_ctx pack_context(const Sources& sources, const bp_tensor* target, bp_threads* threads) {
  bp_pack_ctx ctx{};
  ctx.struct_size = sizeof(ctx);
  ctx.sources = sources.tensors.data();
  ctx.source_count = sources.tensors.size();
  ctx.target = target;
  ctx.threads = threads;
  return ctx;
}

/// What memory of a device is keyed by: one that was lost and opened again has nothing of before.
std::string place_of(const DevicePtr& device) {
  return text(device->identity(), '\n', device.get());
}

void copy_and_wait(const DevicePtr& device, const bp_tensor& from, const bp_tensor& to) {
  Stream stream(device);
  check_status(device->call(device->api().copy, stream.raw(), &from, &to),
               "copying a constant to " + device->label());
  if (auto error = stream.drain()) throw error->within("copying a constant to " + device->label());
}

}  // namespace

void upload(const DevicePtr& device, const bp_tensor& from, const bp_tensor& to) {
  if (from.bytes == 0) return;
  if (copy_mode(*device, BP_MEMORY_HOST, BP_MEMORY_DEVICE) != BP_COPY_NONE)
    return copy_and_wait(device, from, to);
  const DeviceBuffer staging(device, BP_MEMORY_PINNED, from.bytes,
                             device->alignment(BP_MEMORY_PINNED));
  std::memcpy(staging.host_ptr(), from.host_ptr, from.bytes);
  bp_tensor pinned = from;
  pinned.buffer = staging.raw();
  pinned.offset = 0;
  pinned.host_ptr = staging.host_ptr();
  pinned.memory = BP_MEMORY_PINNED;
  copy_and_wait(device, pinned, to);
}

std::vector<std::byte> download(const DevicePtr& device, const Weight& weight) {
  const bp_tensor& from = weight.value.description;
  std::vector<std::byte> bytes(from.bytes);
  if (bytes.empty()) return bytes;
  if (from.host_ptr != nullptr) {
    std::memcpy(bytes.data(), from.host_ptr, bytes.size());
    return bytes;
  }
  bp_tensor to = from;
  to.buffer = nullptr;
  to.offset = 0;
  to.host_ptr = bytes.data();
  to.memory = BP_MEMORY_HOST;
  if (copy_mode(*device, BP_MEMORY_DEVICE, BP_MEMORY_HOST) != BP_COPY_NONE) {
    copy_and_wait(device, from, to);
    return bytes;
  }
  const DeviceBuffer staging(device, BP_MEMORY_PINNED, from.bytes,
                             device->alignment(BP_MEMORY_PINNED));
  to.buffer = staging.raw();
  to.host_ptr = staging.host_ptr();
  to.memory = BP_MEMORY_PINNED;
  copy_and_wait(device, from, to);
  std::memcpy(bytes.data(), staging.host_ptr(), bytes.size());
  return bytes;
}

LazyConstant::LazyConstant(std::string name, DataType type, std::vector<std::int64_t> dims)
    : name_(std::move(name)), type_(type), dims_(std::move(dims)) {}

LazyConstant::~LazyConstant() {
  if (drop != nullptr) drop(self);
}

ContentHash LazyConstant::hash() const {
  std::string all = identity + '\0' + key + '\0' + text(static_cast<int>(type_));
  for (const std::int64_t dim : dims_) all += text(',', dim);
  for (const ConstantRef& source : sources) all += '\0' + hash_text(source.hash());
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.high64, hash.low64};
}

ConstantPtr LazyConstant::get(WeightStore& store, bp_threads* threads) const {
  const WeightPtr weight = store.computed(*this, threads);
  const auto* data = static_cast<const std::byte*>(weight->value.description.host_ptr);
  return std::make_shared<Constant>(type_, dims_, std::span(data, weight->value.description.bytes),
                                    weight);
}

/// Removes those whose weights have ended and that nobody is about to fill; the caller holds mutex_.
void WeightStore::sweep_cells() {
  std::erase_if(cells_, [](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->weight.expired();
  });
}

WeightPtr WeightStore::find_or_make(const std::string& key,
                                    const std::function<WeightPtr()>& make) {
  std::shared_ptr<Cell> cell;
  {
    const std::lock_guard lock(mutex_);
    if (cells_.size() >= sweep_at_) {
      sweep_cells();
      sweep_at_ = 2 * cells_.size() + 64;
    }
    std::shared_ptr<Cell>& place = cells_[key];
    if (place == nullptr) place = std::make_shared<Cell>();
    cell = place;
  }
  const std::lock_guard making(cell->making);
  {
    const std::lock_guard lock(mutex_);
    if (WeightPtr weight = cell->weight.lock()) return weight;
  }
  WeightPtr weight = make();
  const std::lock_guard lock(mutex_);
  cell->weight = weight;
  return weight;
}

void WeightStore::use_saved(const std::shared_ptr<const SavedWeights>& weights) {
  const std::lock_guard lock(mutex_);
  std::erase_if(saved_, [](const auto& known) { return known.expired(); });
  saved_.push_back(weights);
}

std::shared_ptr<Weight> WeightStore::find_saved(const DevicePtr& device, const std::string& key,
                                                DataType type,
                                                const std::vector<std::int64_t>& dims,
                                                std::uint64_t bytes, std::uint64_t alignment) {
  std::vector<std::shared_ptr<const SavedWeights>> files;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& known : saved_) {
      if (auto file = known.lock()) files.push_back(std::move(file));
    }
  }
  if (files.empty() || bytes == 0) return nullptr;
  const ContentHash name = saved_key(key);
  for (const std::shared_ptr<const SavedWeights>& file : files) {
    const auto found = file->find(name, bytes);
    if (!found) continue;
    ++restored_count_;
    const auto address = reinterpret_cast<std::uintptr_t>(found->data());
    if (device->on_host_memory() && address % alignment == 0) {
      auto weight = std::make_shared<Weight>();
      weight->value.set_tensor(type, dims);
      // Plugins do not write what is packed; the ABI's tensor has one pointer for both uses.
      weight->value.description.host_ptr = const_cast<std::byte*>(found->data());
      weight->file = file->owner();
      weight->key = key;
      return weight;
    }
    std::shared_ptr<Weight> weight = make_weight(device, type, dims, bytes, alignment);
    weight->key = key;
    if (device->on_host_memory()) {
      std::memcpy(weight->value.description.host_ptr, found->data(), found->size());
    } else {
      RuntimeValue from;
      from.set_tensor(type, dims);
      from.description.host_ptr = const_cast<std::byte*>(found->data());
      upload(device, from.description, weight->value.description);
    }
    return weight;
  }
  return nullptr;
}

WeightPtr WeightStore::plain(const DevicePtr& device, const ConstantRef& constant,
                             bp_threads* threads) {
  // What a rewrite would have to compute is worth saving; the rest is in the model's file.
  std::string saved;
  if (constant.lazy != nullptr && constant.type() != DataType::String) {
    saved = "plain\n" + hash_text(constant.hash());
    for (const std::int64_t dim : constant.dims()) saved += text(',', dim);
  }
  const auto make = [&]() -> WeightPtr {
    if (!saved.empty()) {
      const auto bytes = storage_bytes(constant.type(),
                                       static_cast<std::uint64_t>(element_count(constant.dims())));
      if (auto weight =
              find_saved(device, saved, constant.type(), constant.dims(), bytes.value_or(0), 64))
        return weight;
    }
    const ConstantPtr contents = constant.get(*this, threads);
    if (contents->type() == DataType::String || device->on_host_memory()) {
      auto weight = std::make_shared<Weight>();
      weight->value.set_constant(*contents);
      weight->source = contents;
      weight->key = saved;
      return weight;
    }
    auto weight = make_weight(device, contents->type(), contents->dims(),
                              contents->stored_bytes().size(), 64);
    weight->key = saved;
    upload(device, shown_on_host(*contents)->description, weight->value.description);
    MappedFile::let_go(contents->stored_bytes());
    return weight;
  };
  // Where a constant serves as it lies there is nothing to share, and its contents need not be hashed.
  if (constant.known != nullptr &&
      (constant.type() == DataType::String || device->on_host_memory()))
    return make();
  std::string dims;
  for (const std::int64_t dim : constant.dims()) dims += text(',', dim);
  const std::string place = device->on_host_memory() ? std::string("host") : place_of(device);
  return find_or_make(text("plain\n", place, '\n', hash_text(constant.hash()), dims), make);
}

WeightPtr WeightStore::packed(const DevicePtr& device, const PackWish& wish,
                              const std::vector<ConstantRef>& sources, bp_threads* threads) {
  std::string what = text(wish.key, '\n', wish.bytes, '\n', wish.alignment, '\n', wish.library);
  for (const ConstantRef& source : sources) what += '\n' + hash_text(source.hash());
  const std::string saved = text("packed\n", device->identity(), '\n', what);
  const auto make = [&]() -> WeightPtr {
    const std::vector<std::int64_t> dims = {static_cast<std::int64_t>(wish.bytes)};
    if (auto known = find_saved(device, saved, DataType::UInt8, dims, wish.bytes, wish.alignment))
      return known;
    auto weight = make_weight(device, DataType::UInt8, dims, wish.bytes, wish.alignment);
    weight->key = saved;
    const bool empty = std::any_of(sources.begin(), sources.end(), [](const ConstantRef& source) {
      return element_count(source.dims()) == 0;
    });
    ++packed_count_;
    if (empty) return weight;  // there is nothing to pack, and nobody reads it
    const Sources read(sources, *this, threads);
    Stream stream(device);
    bp_pack_ctx ctx = pack_context(read, weight->value.tensor, threads);
    ctx.stream = stream.raw();
    check_status(call_for_status([&] { return wish.pack(wish.self, &ctx); }),
                 "packing a weight for " + device->label());
    if (auto error = stream.drain()) throw error->within("packing a weight for " + device->label());
    return weight;
  };
  return find_or_make(text("packed\n", place_of(device), '\n', what), [&] {
    WeightPtr made = make();
    let_go(sources);
    return made;
  });
}

WeightPtr WeightStore::computed(const LazyConstant& constant, bp_threads* threads) {
  return find_or_make("computed\n" + hash_text(constant.hash()), [&]() -> WeightPtr {
    auto weight = std::make_shared<Weight>();
    weight->value.set_owned_tensor(constant.type(), constant.dims());
    const Sources read(constant.sources, *this, threads);
    const bp_pack_ctx ctx = pack_context(read, weight->value.tensor, threads);
    check_status(call_for_status([&] { return constant.compute(constant.self, &ctx); }),
                 "computing the constant '" + constant.name() + "'");
    let_go(constant.sources);
    return weight;
  });
}

}  // namespace backplane::core
