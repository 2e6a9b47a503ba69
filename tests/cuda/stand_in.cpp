#include "tests/cuda/stand_in.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

// What a handle points to here.
struct CUevent_st {
  std::uint64_t recorded = 0, done = 0;
};
struct CUmod_st {
  std::string source;
};
struct CUctx_st {};
struct CUfunc_st {
  std::string source;
};
struct CUstream_st {
  std::deque<std::function<bool()>> work;  ///< false: not yet
  CUctx_st* context = nullptr;
};

namespace backplane::cuda {
namespace {

std::set<CUstream_st*>& all_streams() {
  static std::set<CUstream_st*> streams;
  return streams;
}

/// Does what can be done.
void advance() {
  if (stand_in().holds) return;
  for (bool moved = true; moved;) {
    moved = false;
    for (CUstream_st* const stream : all_streams()) {
      while (!stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        moved = true;
      }
    }
  }
}

void put(StreamHandle stream, std::function<bool()> work) {
  stream->work.push_back(std::move(work));
  advance();
}

class StandInContext final : public Context {
 public:
  StandInContext() { ++stand_in().live_contexts; }
  ~StandInContext() override { --stand_in().live_contexts; }
  CUctx_st* native() const override { return const_cast<CUctx_st*>(&context_); }

  Address allocate(std::uint64_t bytes) override {
    stand_in().note("allocate");
    stand_in().live_bytes += bytes;
    void* const memory = std::malloc(bytes + sizeof(std::max_align_t));
    std::memcpy(memory, &bytes, sizeof(bytes));
    return reinterpret_cast<Address>(memory) + sizeof(std::max_align_t);
  }
  void free(Address memory) noexcept override {
    void* const start = reinterpret_cast<void*>(memory - sizeof(std::max_align_t));
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, start, sizeof(bytes));
    stand_in().live_bytes -= bytes;
    std::free(start);
  }
  void trim() noexcept override { stand_in().calls.emplace_back("trim"); }
  void* allocate_pinned(std::uint64_t bytes) override {
    stand_in().note("allocate_pinned");
    ++stand_in().live_pinned;
    return std::calloc(1, bytes);
  }
  void free_pinned(void* memory) noexcept override {
    --stand_in().live_pinned;
    std::free(memory);
  }
  bool enable_peer(Context&) override {
    stand_in().note("enable_peer");
    return stand_in().peers;
  }

  StreamHandle create_stream() override {
    stand_in().note("create_stream");
    ++stand_in().live_streams;
    auto* const stream = new CUstream_st;
    stream->context = native();
    all_streams().insert(stream);
    return stream;
  }
  void destroy_stream(StreamHandle stream) noexcept override {
    --stand_in().live_streams;
    all_streams().erase(stream);
    delete stream;
  }
  void synchronize(StreamHandle stream) override {
    stand_in().note("synchronize");
    advance();
    if (!stream->work.empty()) throw std::logic_error("this wait would never end");
  }
  bool owns(StreamHandle stream) override {
    return all_streams().count(stream) > 0 && stream->context == native();
  }

  EventHandle create_event() override {
    stand_in().note("create_event");
    ++stand_in().live_events;
    return new CUevent_st;
  }
  void destroy_event(EventHandle event) noexcept override {
    --stand_in().live_events;
    delete event;
  }
  void record(EventHandle event, StreamHandle stream) override {
    stand_in().note("record");
    const std::uint64_t number = ++event->recorded;
    put(stream, [event, number] { return event->done = number, true; });
  }
  void wait(StreamHandle stream, EventHandle event) override {
    stand_in().note("wait");
    const std::uint64_t number = event->recorded;
    put(stream, [event, number] { return event->done >= number; });
  }
  bool is_done(EventHandle event) override {
    advance();
    return event->done >= event->recorded;
  }
  void synchronize(EventHandle event) override {
    stand_in().note("synchronize_event");
    if (!is_done(event)) throw std::logic_error("this wait would never end");
  }
  void wait_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    stand_in().note("wait_value");
    put(stream, [word, value] { return *word >= value; });
  }
  void write_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    stand_in().note("write_value");
    put(stream, [word, value] { return *word = value, true; });
  }

  void copy(StreamHandle stream, Address to, Address from, std::uint64_t bytes) override {
    stand_in().note("copy");
    put(stream, [=] {
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return true;
    });
  }

  ModuleHandle load(const std::string& image) override {
    stand_in().note("load");
    ++stand_in().live_modules;
    return new CUmod_st{image};
  }
  void unload(ModuleHandle module) noexcept override {
    --stand_in().live_modules;
    functions_.erase(module);
    delete module;
  }
  FunctionHandle function(ModuleHandle module) override {
    stand_in().note("function");
    auto& function = functions_[module];
    function = std::make_unique<CUfunc_st>(CUfunc_st{module->source});
    return function.get();
  }
  void launch(FunctionHandle function, const Extent& groups, const Extent& group, StreamHandle,
              void** arguments) override {
    stand_in().note("launch");
    if (stand_in().kernel) stand_in().kernel(function->source, groups, group, arguments);
  }

 private:
  CUctx_st context_;
  std::map<ModuleHandle, std::unique_ptr<CUfunc_st>> functions_;
};

class StandInDriver final : public Driver {
 public:
  int device_count() override { return static_cast<int>(stand_in().devices.size()); }
  DeviceTraits traits(int ordinal) override {
    return stand_in().devices.at(static_cast<std::size_t>(ordinal));
  }
  std::unique_ptr<Context> open(int) override {
    stand_in().note("open");
    return std::make_unique<StandInContext>();
  }
};

class StandInCompiler final : public Compiler {
 public:
  std::string version() override { return "stand-in 1"; }
  std::vector<int> architectures() override { return {75, 80, 86, 90}; }
  std::string compile(const std::string& source, const std::string&) override {
    stand_in().note("compile");
    compiled_sources().push_back(source);
    return source;
  }
};

}  // namespace

std::size_t StandInState::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

void StandInState::note(const std::string& call) {
  calls.push_back(call);
  std::vector<std::string>& errors = failures[call];
  if (errors.empty()) return;
  const std::string name = errors.front();
  errors.erase(errors.begin());
  if (!name.empty()) throw_cuda(call.c_str(), name);
}

StandInState& stand_in() {
  static StandInState state;
  return state;
}

DeviceTraits stand_in_device(int major, int minor) {
  DeviceTraits traits;
  traits.name = "Stand-in";
  traits.driver = "no driver";
  traits.major = major;
  traits.minor = minor;
  traits.memory_bytes = 1ull << 30;
  traits.has_pools = traits.has_stream_values = true;
  return traits;
}

std::vector<std::string>& compiled_sources() {
  static std::vector<std::string> sources;
  return sources;
}

std::unique_ptr<Driver> load_stand_in() { return std::make_unique<StandInDriver>(); }
std::unique_ptr<Compiler> load_stand_in_compiler() { return std::make_unique<StandInCompiler>(); }

}  // namespace backplane::cuda
