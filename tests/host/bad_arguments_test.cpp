// Every function of the C interface with arguments that a caller should not give: null, out of range, names that do not exist, and (in
// builds with assertions) objects that were destroyed. Each answers with a code and a sentence, and none crashes. What is drawn follows
// from the functions' signatures; a function that is not called here is found by the list of the library's symbols.
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backplane/backplane.h"
#include "backplane/plugin_api.h"

// Huge tensors are refused by the system's allocator; the sanitizer's is to do likewise.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizer looks for it under this name
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace backplane::host_test {
namespace {

#ifdef BACKPLANE_SANITIZED
constexpr std::uint64_t kRounds = 15;  // per function: each takes ten times as long
#else
constexpr std::uint64_t kRounds = 40;
#endif
constexpr std::uint64_t kSeed = 20261121;

// y = relu(x + w), x [n,2]
const unsigned char kModel[] = {
    8,   8,   18, 0,   58,  100, 10,  16, 10, 1,   120, 10,  1,   119, 18,  3,  115, 117, 109,
    34,  3,   65, 100, 100, 10,  14,  10, 3,  115, 117, 109, 18,  1,   121, 34, 4,   82,  101,
    108, 117, 18, 1,   103, 42,  17,  8,  2,  16,  1,   66,  1,   119, 74,  8,  0,   0,   128,
    63,  0,   0,  128, 191, 90,  20,  10, 1,  120, 18,  15,  10,  13,  8,   1,  18,  9,   10,
    3,   18,  1,  110, 10,  2,   8,   2,  98, 20,  10,  1,   121, 18,  15,  10, 13,  8,   1,
    18,  9,   10, 3,   18,  1,   110, 10, 2,  8,   2,   66,  4,   10,  0,   16, 17};

void require(backplane_status* status) {
  if (status == nullptr) return;
  const std::string message = backplane_status_message(status);
  backplane_status_free(status);
  throw std::runtime_error(message);
}

/// Makes objects of each kind, and ends them.
template <class T>
struct Maker;

#define BACKPLANE_MAKER(kind, call)                                                   \
  template <>                                                                         \
  struct Maker<backplane_##kind> {                                                    \
    static backplane_##kind* make() {                                                 \
      backplane_##kind* made = nullptr;                                               \
      require(call);                                                                  \
      return made;                                                                    \
    }                                                                                 \
    static void end(backplane_##kind* object) { backplane_##kind##_destroy(object); } \
  }

backplane_environment* shared_environment() {
  static backplane_environment* const environment = [] {
    backplane_options* options = nullptr;
    require(backplane_options_create(&options));
    require(backplane_options_set(options, "environment.plugin_path", BACKPLANE_TEST_PLUGIN_DIR));
    require(backplane_options_set(options, "environment.threads", "1"));
    backplane_environment* made = nullptr;
    const backplane_log_fn silent = [](void*, std::int32_t, const char*) {};
    require(backplane_environment_create(options, silent, nullptr, &made));
    backplane_options_destroy(options);
    return made;
  }();
  return environment;
}

BACKPLANE_MAKER(options, backplane_options_create(&made));
BACKPLANE_MAKER(environment, backplane_environment_create(nullptr, nullptr, nullptr, &made));
BACKPLANE_MAKER(session, backplane_session_create_from_memory(shared_environment(), kModel,
                                                              sizeof(kModel), nullptr, &made));
BACKPLANE_MAKER(run_options, backplane_run_options_create(&made));
BACKPLANE_MAKER(cancel, backplane_cancel_create(&made));
BACKPLANE_MAKER(string, backplane_environment_providers(shared_environment(), &made));

backplane_status* make_binding(backplane_binding** out) {
  backplane_session* session = Maker<backplane_session>::make();
  backplane_status* status = backplane_binding_create(session, out);
  backplane_session_destroy(session);
  return status;
}
BACKPLANE_MAKER(binding, make_binding(&made));

backplane_status* make_explanation(backplane_explanation** out) {
  backplane_session* session = Maker<backplane_session>::make();
  backplane_status* status = backplane_session_explanation(session, out);
  backplane_session_destroy(session);
  return status;
}
BACKPLANE_MAKER(explanation, make_explanation(&made));

backplane_status* make_type(backplane_type** out) {
  const std::int64_t dims[] = {-1, 2};
  return backplane_type_create("tensor(float)", 2, dims, nullptr, out);
}
BACKPLANE_MAKER(type, make_type(&made));

/// y = relu(x), where x has a type in two of three.
backplane_status* make_graph(backplane_graph** out) {
  static int turn = 0;
  require(backplane_graph_create(nullptr, nullptr, out));
  const char* const inputs[] = {"x"};
  const char* const outputs[] = {"y"};
  if (++turn % 3 != 0) {
    backplane_type* type = Maker<backplane_type>::make();
    require(backplane_graph_add_value(*out, "x", type));
    Maker<backplane_type>::end(type);
  }
  return backplane_graph_add_node(*out, "Relu", nullptr, "node", inputs, 1, outputs, 1, nullptr);
}
BACKPLANE_MAKER(graph, make_graph(&made));

backplane_status* make_value(backplane_value** out) {
  static int kind = 0;
  const std::int64_t dims[] = {2, 2};
  switch (++kind % 3) {
    case 0:
      return backplane_value_create(8, dims, 1, out);
    case 1:
      return backplane_value_create_sequence("seq(tensor(float))", nullptr, 0, out);
    default:
      return backplane_value_create(1, dims, 2, out);
  }
}
BACKPLANE_MAKER(value, make_value(&made));
#undef BACKPLANE_MAKER

template <>
struct Maker<backplane_status> {
  static backplane_status* make() { return backplane_options_set(nullptr, nullptr, nullptr); }
  static void end(backplane_status* status) { backplane_status_free(status); }
};

template <class T, class = void>
struct IsHandle : std::false_type {};
template <class T>
struct IsHandle<T, std::void_t<decltype(&Maker<T>::make)>> : std::true_type {};

constexpr std::size_t kArraySize = 4;    // elements behind each array
constexpr std::size_t kBufferSize = 64;  // bytes behind each buffer

/// Draws arguments, and keeps what they point at until the call is over.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  ~Draw() {
    for (const auto& end : ends_) end();
  }
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  std::size_t below(std::size_t limit) { return random_() % limit; }
  void later(std::function<void()> end) { ends_.push_back(std::move(end)); }

  template <class T>
  T* handle() {
    const std::size_t choice = below(6);
    if (choice == 0) return nullptr;
    T* made = Maker<T>::make();
#ifndef NDEBUG
    if (choice == 1) {  // a build without assertions cannot know
      Maker<T>::end(made);
      return made;
    }
#endif
    later([made] { Maker<T>::end(made); });
    return made;
  }

  /// At least kArraySize bytes can be read, for functions that are told a size.
  const char* text() {
    static const std::string kLong(100000, 'a');
    static const char kTexts[][32] = {"",
                                      "x",
                                      "y",
                                      "nobody",
                                      "threads",
                                      "tag",
                                      "entry.",
                                      "cpu",
                                      "true",
                                      "-1",
                                      "\xff\xfe",
                                      "tensor",
                                      "seq(tensor(",
                                      "=",
                                      "../..",
                                      "map(int64,tensor(float))",
                                      "op:Add",
                                      "99999999",
                                      "a\nb",
                                      "%s%n",
                                      "tensor(float)",
                                      "profile"};
    const std::size_t choice = below(std::size(kTexts) + 2);
    if (choice == std::size(kTexts)) return nullptr;
    return choice < std::size(kTexts) ? kTexts[choice] : kLong.c_str();
  }

  template <class T>
  T number() {
    static const std::int64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            3,
                                            -1,
                                            8,
                                            99,
                                            -99,
                                            std::int64_t{1} << 40,
                                            std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::int64_t>::min()};
    return static_cast<T>(kNumbers[below(std::size(kNumbers))]);
  }

  /// `count` of something in memory that stays; null sometimes.
  template <class T, class Make>
  T* array(std::size_t count, const Make& make) {
    if (below(5) == 0) return nullptr;
    auto elements = std::make_shared<std::vector<T>>();
    for (std::size_t i = 0; i < count; ++i) elements->push_back(make());
    later([elements] {});
    return elements->data();
  }

 private:
  std::mt19937_64 random_;
  std::vector<std::function<void()>> ends_;  // in their order: arrays after what they hold
};

/// What a function wrote through an out parameter: null after a failure; after a success the caller's, or borrowed.
struct Outs {
  bool are_borrowed = false;
  std::vector<std::function<void(bool failed)>> checks;
};

template <class Argument, class = void>
struct Drawn;  // the argument of a type, or nothing: then a test must say how it is drawn

template <class T>
struct Drawn<T, std::enable_if_t<std::is_integral_v<T> || std::is_floating_point_v<T>>> {
  static T draw(Draw& draw, Outs&, bool has_memory) {
    // A count is bounded where something in memory may be counted by it; nothing else could be checked.
    if (has_memory && std::is_unsigned_v<T>) return static_cast<T>(draw.below(kArraySize + 1));
    return draw.number<T>();
  }
};
template <class T>
struct Drawn<T*, std::enable_if_t<IsHandle<std::remove_const_t<T>>::value>> {
  static T* draw(Draw& draw, Outs&, bool) { return draw.handle<std::remove_const_t<T>>(); }
};
template <>
struct Drawn<const char*> {
  static const char* draw(Draw& draw, Outs&, bool) { return draw.text(); }
};
template <>
struct Drawn<const char* const*> {
  static const char* const* draw(Draw& draw, Outs&, bool) {
    return draw.array<const char*>(kArraySize, [&] { return draw.text(); });
  }
};
template <class T>
struct Drawn<T* const*, std::enable_if_t<IsHandle<std::remove_const_t<T>>::value>> {
  static T* const* draw(Draw& draw, Outs&, bool) {
    return draw.array<T*>(kArraySize, [&] { return draw.handle<std::remove_const_t<T>>(); });
  }
};
/// An out parameter of one object.
template <class T>
struct Drawn<T**, std::enable_if_t<IsHandle<std::remove_const_t<T>>::value>> {
  static T** draw(Draw& draw, Outs& outs, bool) {
    if (draw.below(6) == 0) return nullptr;
    // Four of them: some functions take an array of objects to write or to make.
    auto place = std::make_shared<std::vector<T*>>(kArraySize, nullptr);
    bool is_ours = !std::is_const_v<T> && !outs.are_borrowed;
    outs.checks.push_back([place, is_ours](bool failed) {
      for (T*& made : *place) {
        if (failed) {
          EXPECT_EQ(made, nullptr) << "an out parameter was set by a call that failed";
        }
        if (failed || made == nullptr || !is_ours) continue;
        if constexpr (!std::is_const_v<T>) Maker<T>::end(made);
      }
    });
    draw.later([place] {});
    return place->data();
  }
};
template <>
struct Drawn<const char**> {
  static const char** draw(Draw& draw, Outs&, bool) {
    return draw.array<const char*>(kArraySize, [] { return nullptr; });
  }
};
template <class T>
struct Drawn<T*, std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, const char> &&
                                  !std::is_same_v<T, const std::uint64_t>>> {
  static T* draw(Draw& draw, Outs&, bool) {
    using Element = std::remove_const_t<T>;
    return draw.array<Element>(kArraySize * 2, [&] { return draw.number<Element>(); });
  }
};
/// Sizes of texts.
template <>
struct Drawn<const std::uint64_t*> {
  static const std::uint64_t* draw(Draw& draw, Outs&, bool) {
    return draw.array<std::uint64_t>(
        kArraySize, [&] { return static_cast<std::uint64_t>(draw.below(kArraySize + 1)); });
  }
};
template <class T>
struct Drawn<T*, std::enable_if_t<std::is_void_v<T>>> {
  static T* draw(Draw& draw, Outs&, bool) {
    return draw.array<unsigned char>(kBufferSize,
                                     [&] { return static_cast<unsigned char>(draw.below(256)); });
  }
};
/// Descriptions that are broken: empty, too short, without functions, with a count of things that are not there.
template <>
struct Drawn<const bp_plugin*> {
  static const bp_plugin* draw(Draw& draw, Outs&, bool) {
    return draw.array<bp_plugin>(1, [&] {
      bp_plugin broken{};
      const std::size_t choice = draw.below(4);
      if (choice > 0) broken.struct_size = choice == 1 ? 24 : sizeof(broken);
      broken.name = broken.version = broken.vendor = "broken";
      if (choice == 3) {
        broken.init = [](void*, const bp_host_api*) -> bp_status* { return nullptr; };
        broken.shutdown = [](void*) {};
        broken.schema_count = 3;
      }
      return broken;
    });
  }
};
template <>
struct Drawn<backplane_log_fn> {
  static backplane_log_fn draw(Draw&, Outs&, bool) {
    return [](void*, std::int32_t, const char*) {};
  }
};
template <>
struct Drawn<const backplane_node_callbacks*> {
  static const backplane_node_callbacks* draw(Draw& draw, Outs&, bool) {
    static const backplane_node_callbacks kSome[] = {
        {sizeof(backplane_node_callbacks), nullptr, nullptr, nullptr},
        {0, nullptr, nullptr, nullptr},
        {sizeof(backplane_node_callbacks) - 1, nullptr, nullptr, nullptr}};
    const std::size_t choice = draw.below(4);
    return choice < 3 ? &kSome[choice] : nullptr;
  }
};

/// Feeds or fetches that are right more often than not, so that what is wrong of one is seen.
backplane_tensor tensor_of(Draw& draw) {
  backplane_tensor tensor{};
  static const std::uint64_t kSizes[] = {0, 8, sizeof(tensor) - 8, sizeof(tensor) + 4, ~0ull};
  tensor.struct_size = draw.below(12) == 0 ? kSizes[draw.below(5)] : sizeof(tensor);
  if (draw.below(3) != 0) tensor.name = draw.below(3) != 0 ? "x" : draw.text();
  if (draw.below(3) == 0) tensor.value = draw.handle<backplane_value>();
  tensor.dtype = draw.below(4) != 0 ? 1 : draw.number<std::int32_t>();
  tensor.rank = draw.below(4) != 0 ? 2 : draw.number<std::uint64_t>();
  if (tensor.rank > 8 && draw.below(2) == 0) tensor.rank = 1;
  tensor.dims = draw.array<std::int64_t>(
      8, [&] { return draw.below(8) != 0 ? std::int64_t{2} : draw.number<std::int64_t>(); });
  if (tensor.rank <= 1024 && tensor.rank > 8) tensor.dims = nullptr;
  tensor.data = Drawn<void*>::draw(draw, *std::make_unique<Outs>(), true);
  tensor.bytes = draw.below(2) != 0 ? kBufferSize : draw.below(kBufferSize);
  return tensor;
}
template <>
struct Drawn<const backplane_tensor*> {
  static const backplane_tensor* draw(Draw& draw, Outs&, bool) {
    return draw.array<backplane_tensor>(kArraySize, [&] { return tensor_of(draw); });
  }
};
template <>
struct Drawn<backplane_tensor*> {
  static backplane_tensor* draw(Draw& draw, Outs& outs, bool) {
    if (draw.below(6) == 0) return nullptr;
    auto place = std::make_shared<std::vector<backplane_tensor>>();
    for (std::size_t i = 0; i < kArraySize; ++i) {
      place->push_back(tensor_of(draw));
      if (draw.below(3) != 0) place->back().name = "y";
      if (draw.below(3) != 0) place->back().data = nullptr;
      if (draw.below(3) != 0) place->back().value = nullptr;
    }
    const auto before = std::make_shared<const std::vector<backplane_tensor>>(*place);
    outs.checks.push_back([place, before](bool failed) {
      for (std::size_t i = 0; i < kArraySize; ++i) {
        if (failed) {
          EXPECT_EQ(std::memcmp(&(*place)[i], &(*before)[i], sizeof(backplane_tensor)), 0)
              << "a fetch was changed by a run that failed";
        }
        if ((*place)[i].value != (*before)[i].value) backplane_value_destroy((*place)[i].value);
      }
    });
    return place->data();
  }
};

template <class T>
constexpr bool kIsMemory =
    std::is_pointer_v<T> && !IsHandle<std::remove_const_t<std::remove_pointer_t<T>>>::value &&
    !std::is_same_v<T, const char*>;

/// Whether what a number may count or measure can be read: an array, or a text that its size follows.
template <class... Arguments>
constexpr bool has_memory() {
  constexpr std::array<bool, sizeof...(Arguments) + 1> kTexts = {
      false, std::is_same_v<Arguments, const char*>...};
  constexpr std::array<bool, sizeof...(Arguments) + 1> kSizes = {
      std::is_same_v<Arguments, std::uint64_t>..., false};
  bool found = (kIsMemory<Arguments> || ...);
  for (std::size_t i = 0; i < kTexts.size(); ++i) found = found || (kTexts[i] && kSizes[i]);
  return found;
}

/// A failure is a code that callers know and one line.
bool check_status(backplane_status* status) {
  if (status == nullptr) return false;
  const std::int32_t code = backplane_status_code(status);
  const std::string message = backplane_status_message(status);
  EXPECT_GE(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_LE(code, BACKPLANE_FILE_FAILED);
  EXPECT_NE(code, BACKPLANE_INTERNAL) << message;
  EXPECT_GE(message.size(), 8u) << "not a sentence: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  backplane_status_free(status);
  return true;
}

template <class... Arguments>
void call(backplane_status* (*function)(Arguments...), Draw& draw, bool borrows = false) {
  Outs outs;
  outs.are_borrowed = borrows;
  // Braces: drawn from left to right.
  std::tuple<Arguments...> arguments{
      Drawn<Arguments>::draw(draw, outs, has_memory<Arguments...>())...};
  const bool failed = check_status(std::apply(function, arguments));
  for (const auto& check : outs.checks) check(failed);
}

template <class Result, class... Arguments>
void call(Result (*function)(Arguments...), Draw& draw) {
  Outs outs;
  std::tuple<Arguments...> arguments{
      Drawn<Arguments>::draw(draw, outs, has_memory<Arguments...>())...};
  if constexpr (std::is_same_v<Result, const char*>) {
    const char* const result = std::apply(function, arguments);
    if (result != nullptr) {
      EXPECT_LT(std::strlen(result), std::size_t{1} << 24);
    }
  } else {
    std::apply(function, arguments);
  }
}

/// Functions that end objects: null, a living one, and one that is dead already.
template <class T>
void call(void (*end)(T*), Draw& draw) {
  T* object = draw.below(3) == 0 ? nullptr : Maker<T>::make();
  end(object);
#ifndef NDEBUG
  end(object);
#endif
}

using Calls = std::map<std::string, std::function<void(Draw&)>>;

const Calls& calls() {
#define BACKPLANE_CALL(name)                        \
  {                                                 \
#name, [](Draw & draw) { call(&(name), draw); } \
  }
#define BACKPLANE_CALL_LENDING(name)                      \
  {                                                       \
#name, [](Draw & draw) { call(&(name), draw, true); } \
  }
  static const Calls kCalls = {
#include "tests/host/calls.inc"
  };
#undef BACKPLANE_CALL
#undef BACKPLANE_CALL_LENDING
  return kCalls;
}

TEST(BadArguments, EveryFunctionOfTheLibraryIsCalled) {
  std::ifstream file(BACKPLANE_TEST_SOURCE_DIR "/tests/host/symbols.txt");
  ASSERT_TRUE(file) << "symbols.txt is not there";
  std::set<std::string> missing;
  for (std::string name; file >> name;) {
    if (calls().count(name) == 0) missing.insert(name);
  }
  std::string names;
  for (const std::string& name : missing) names += name + " ";
  EXPECT_TRUE(missing.empty()) << "add to tests/host/calls.inc: " << names;
}

/// Files that functions are told to write lie here, and two folders deep, as "../.." is among what is drawn.
class OwnFolder {
 public:
  OwnFolder() : before_(std::filesystem::current_path()) {
    folder_ = before_ / ("bad_arguments." + std::to_string(std::random_device()()));
    std::filesystem::create_directories(folder_ / "a/b");
    std::filesystem::current_path(folder_ / "a/b");
  }
  ~OwnFolder() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

 private:
  std::filesystem::path before_, folder_;
};

TEST(BadArguments, AreAnsweredWithACodeAndASentence) {
  const OwnFolder folder;
  for (const auto& [name, function] : calls()) {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      SCOPED_TRACE(name + ", round " + std::to_string(round));
      Draw draw(kSeed + round * 7919 + std::hash<std::string>()(name));
      function(draw);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadArguments, TheNullThatIsWrongIsNamed) {
  backplane_status* status = backplane_options_set(nullptr, "threads", "1");
  ASSERT_NE(status, nullptr);
  EXPECT_NE(std::string(backplane_status_message(status)).find("'options' is null"),
            std::string::npos);
  backplane_status_free(status);
}

#ifndef NDEBUG
TEST(BadArguments, AnObjectThatWasDestroyedIsNamed) {
  backplane_options* options = Maker<backplane_options>::make();
  backplane_options_destroy(options);
  backplane_options_destroy(options);
  backplane_status* status = backplane_options_set(options, "threads", "1");
  ASSERT_NE(status, nullptr);
  EXPECT_NE(std::string(backplane_status_message(status)).find("'options' was destroyed"),
            std::string::npos);
  backplane_status_free(status);
}
#endif

}  // namespace
}  // namespace backplane::host_test
