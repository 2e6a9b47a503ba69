// The file of a saved plan.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/atomic_file.hpp"
#include "core/base/mapped_file.hpp"
#include "core/base/quote.hpp"
#include "core/runtime/saved_plan.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMagic[] = "BPPLAN1\n";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kHeaderBytes = kMagicBytes + 4 * sizeof(std::uint64_t);
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;  ///< where larger weights start
constexpr int kFormat = 1;

std::uint64_t aligned(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

Json json_of(const PlanRecord& record) {
  Json placement = Json::array();
  for (const PlanRecord::PlacedNode& node : record.placement) {
    Json kernels = Json::array();
    for (const PlanRecord::Kernel& kernel : node.kernels)
      kernels.push_back({kernel.place, kernel.name});
    Json reasons = Json::array();
    for (const Reason& reason : node.reasons)
      reasons.push_back({reason.provider, reason.code, reason.text});
    placement.push_back({node.node, node.device, std::move(kernels), std::move(reasons)});
  }
  Json refused = Json::array();
  for (const PlanRecord::Refused& one : record.refused)
    refused.push_back({one.node, one.device, one.text, one.code});
  return {{"feeds", record.feeds},   {"fetches", record.fetches},
          {"placement", placement},  {"refused", refused},
          {"claims", record.claims}, {"rewrites", record.rewrites},
          {"order", record.order},   {"later_kernel", record.later_kernel}};
}

PlanRecord record_from(const Json& json) {
  PlanRecord record;
  json.at("feeds").get_to(record.feeds);
  json.at("fetches").get_to(record.fetches);
  for (const Json& row : json.at("placement")) {
    PlanRecord::PlacedNode node;
    row.at(0).get_to(node.node);
    row.at(1).get_to(node.device);
    for (const Json& kernel : row.at(2))
      node.kernels.push_back({kernel.at(0).get<std::size_t>(), kernel.at(1).get<std::string>()});
    for (const Json& reason : row.at(3))
      node.reasons.push_back({reason.at(0).get<std::string>(), reason.at(1).get<std::string>(),
                              reason.at(2).get<std::string>()});
    record.placement.push_back(std::move(node));
  }
  for (const Json& row : json.at("refused"))
    record.refused.push_back({row.at(0).get<std::string>(), row.at(1).get<std::string>(),
                              row.at(2).get<std::string>(), row.at(3).get<std::string>()});
  json.at("claims").get_to(record.claims);
  json.at("rewrites").get_to(record.rewrites);
  json.at("order").get_to(record.order);
  json.at("later_kernel").get_to(record.later_kernel);
  return record;
}

struct Header {
  std::uint64_t text_bytes = 0, file_bytes = 0;
  ContentHash text_hash;
};

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  invalid("the saved plan ", quoted(path), " ", why, "; save the plan again");
}

Header read_header(const std::string& path, std::span<const std::byte> file) {
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic, kMagicBytes) != 0)
    damaged(path, "is no saved plan of this version");
  std::array<std::uint64_t, 4> words{};
  std::memcpy(words.data(), file.data() + kMagicBytes, sizeof(words));
  const Header header{words[0], words[1], {words[2], words[3]}};
  if (header.file_bytes != file.size())
    damaged(path, text("is cut off: it has ", file.size(), " bytes of ", header.file_bytes));
  if (header.text_bytes > file.size() - kHeaderBytes) damaged(path, "is damaged");
  const auto written = file.subspan(kHeaderBytes, static_cast<std::size_t>(header.text_bytes));
  if (hash_of(written) != header.text_hash) damaged(path, "is damaged");
  return header;
}

}  // namespace

void write_plan_file(const std::string& path, const PlanOrigin& origin, const PlanRecords& records,
                     const WeightsToSave& weights) {
  Json json = {{"format", kFormat}, {"origin", origin}, {"programs", Json::object()}};
  for (const auto& [name, programs] : records) {
    Json& list = json["programs"][name] = Json::array();
    for (const PlanRecord& record : programs) list.push_back(json_of(record));
  }
  // Offsets count from the end of the text, whose length they are part of.
  json["weights"] = Json::array();
  std::uint64_t offset = 0;
  for (const auto& [key, bytes] : weights) {
    offset = aligned(offset, bytes.size() >= kPage ? kPage : kAlignment);
    const ContentHash name = saved_key(key);
    const ContentHash hash = hash_of(bytes);
    json["weights"].push_back({name.high, name.low, offset, bytes.size(), hash.high, hash.low});
    offset += bytes.size();
  }
  std::string written;
  try {
    written = json.dump();
  } catch (const Json::exception& error) {
    throw Error(
        Code::Unsupported,
        text("the plan cannot be saved: a name in the model is not UTF-8 (", error.what(), ")"));
  }
  const std::uint64_t start = aligned(kHeaderBytes + written.size(), kPage);
  const ContentHash hash = hash_of(std::as_bytes(std::span(written)));
  const std::array<std::uint64_t, 4> words = {
      written.size(), weights.empty() ? start : start + offset, hash.high, hash.low};
  AtomicFile file(path);
  const auto write = [&](const void* data, std::size_t size) {
    file.write(std::span(static_cast<const std::byte*>(data), size));
  };
  try {
    write(kMagic, kMagicBytes);
    write(words.data(), sizeof(words));
    write(written.data(), written.size());
    file.pad(kPage);
    for (const auto& [key, bytes] : weights) {
      file.pad(bytes.size() >= kPage ? kPage : kAlignment);
      file.write(bytes);
    }
    file.commit();
  } catch (const Error& error) {
    throw error.within("the plan");
  }
}

std::shared_ptr<const SavedPlan> read_plan_file(const std::string& path) {
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error& error) {
    throw error.within("saved plan");
  }
  const Header header = read_header(path, file->bytes());
  const auto* first = reinterpret_cast<const char*>(file->bytes().data()) + kHeaderBytes;
  auto plan = std::make_shared<SavedPlan>();
  plan->file = file;
  const auto no_fractions = [&](int, Json::parse_event_t, const Json& value) {
    if (value.is_number_float())  // conversions to integers would not look at its size
      damaged(path, "is damaged: a number in it is no integer");
    return true;
  };
  try {
    const Json json = Json::parse(first, first + header.text_bytes, no_fractions);
    if (json.at("format").get<int>() != kFormat) damaged(path, "has another format");
    json.at("origin").get_to(plan->origin);
    for (const auto& [name, programs] : json.at("programs").items()) {
      for (const Json& program : programs) plan->records[name].push_back(record_from(program));
    }
    const std::uint64_t start = aligned(kHeaderBytes + header.text_bytes, kPage);
    std::map<ContentHash, SavedWeights::Entry> entries;
    for (const Json& row : json.at("weights")) {
      const auto word = [&](std::size_t i) { return row.at(i).get<std::uint64_t>(); };
      const std::uint64_t offset = word(2);
      if (offset > file->bytes().size()) damaged(path, "is damaged");
      entries[{word(0), word(1)}] = {start + offset, word(3), {word(4), word(5)}};
    }
    plan->weights = std::make_shared<SavedWeights>(path, file->bytes(), file, std::move(entries));
  } catch (const Json::exception& error) {
    damaged(path, text("is damaged: ", single_line(error.what())));
  }
  return plan;
}

void check_origin(const std::string& path, const PlanOrigin& saved, const PlanOrigin& now) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Code::Incompatible,
                text("the saved plan ", quoted(path), " is refused: ", what, "; save it again"));
  };
  for (const auto& [what, state] : now) {
    const auto before = std::find_if(saved.begin(), saved.end(), [&, what = what](const auto& one) {
      return one.first == what;
    });
    if (before == saved.end()) refuse(what + " was not there when it was made");
    if (before->second != state)
      refuse(
          text(what, " changed: now it is ", quoted(state), ", it was ", quoted(before->second)));
  }
  for (const auto& [what, state] : saved) {
    if (std::none_of(now.begin(), now.end(),
                     [&, what = what](const auto& one) { return one.first == what; }))
      refuse(what + " is not there any more");
  }
}

}  // namespace backplane::core
