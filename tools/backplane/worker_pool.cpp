#include "tools/backplane/worker_pool.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tools/backplane/failure.hpp"
#include "tools/backplane/sudden_end.hpp"

namespace backplane::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool write_exactly(int fd, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_exactly(int fd, void* data, std::size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

/// What a worker sends: a tag, a length, and so many bytes.
constexpr std::uint32_t kReady = 0;
constexpr std::uint32_t kAnswer = 1;
constexpr std::uint32_t kRefused = 2;  ///< could not be made: exit code, then the message

bool send(int fd, std::uint32_t tag, const std::string& text) {
  const std::array<std::uint32_t, 2> head = {tag, static_cast<std::uint32_t>(text.size())};
  return write_exactly(fd, head.data(), sizeof head) && write_exactly(fd, text.data(), text.size());
}

struct Message {
  std::uint32_t tag = kReady;
  std::string text;
};

std::optional<Message> receive(int fd) {
  std::array<std::uint32_t, 2> head{};
  if (!read_exactly(fd, head.data(), sizeof head)) return std::nullopt;
  Message message{head[0], std::string(head[1], '\0')};
  if (!read_exactly(fd, message.text.data(), message.text.size())) return std::nullopt;
  return message;
}

[[noreturn]] void worker_main(int requests, int answers, const std::function<Worker*()>& make) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  leave_signals_to_parent();
  const struct rlimit no_core {};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // standard output is the parent's
  std::unique_ptr<Worker> worker;
  try {
    worker.reset(make());
  } catch (const Failure& failure) {
    send(answers, kRefused,
         static_cast<char>('0' + failure.exit_code()) + std::string(failure.what()));
    ::_exit(0);
  }
  send(answers, kReady, "");
  std::uint64_t index = 0;
  while (read_exactly(requests, &index, sizeof index)) {
    if (!send(answers, kAnswer, worker->work(index))) break;
  }
  worker.reset();
  ::_exit(0);
}

std::string death_text(int status) {
  if (WIFSIGNALED(status))
    return text("crashed with signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  return text("ended the process with exit code ", WEXITSTATUS(status));
}

/// A child process, seen from the parent.
class Child {
 public:
  /// `siblings` live already; a copy of their pipes in this one would keep them from seeing an end.
  Child(const std::function<Worker*()>& make, const std::vector<std::unique_ptr<Child>>& siblings) {
    std::array<int, 2> requests{};
    std::array<int, 2> answers{};
    if (::pipe2(requests.data(), O_CLOEXEC) != 0)
      run_failed("cannot start a worker: ", std::strerror(errno));
    if (::pipe2(answers.data(), O_CLOEXEC) != 0)
      run_failed("cannot start a worker: ", std::strerror(errno));
    pid_ = ::fork();
    if (pid_ < 0) run_failed("cannot start a worker: ", std::strerror(errno));
    if (pid_ == 0) {
      ::close(requests[1]);
      ::close(answers[0]);
      for (const auto& sibling : siblings) {
        if (!sibling) continue;
        ::close(sibling->requests_);
        ::close(sibling->answers_);
      }
      worker_main(requests[0], answers[1], make);
    }
    ::close(requests[0]);
    ::close(answers[1]);
    requests_ = requests[1];
    answers_ = answers[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Ends a worker that lives: it sees the end of its requests.
  ~Child() {
    ::close(requests_);
    if (pid_ > 0) wait();
    ::close(answers_);
  }

  void give(std::size_t index, const PoolOptions& options) {
    index_ = index;
    progress_ = options.progress ? options.progress(index) : 0;
    deadline_ = Clock::now() + options.timeout;
    const std::uint64_t number = index;
    write_exactly(requests_, &number, sizeof number);  // that it died shows at the answer
  }
  std::optional<std::size_t> take_index() { return std::exchange(index_, std::nullopt); }
  /// Whether the time is up and nothing has come of it since it began.
  bool is_late(const PoolOptions& options) {
    if (!index_ || Clock::now() <= deadline_) return false;
    const std::uint64_t before = progress_;
    if (options.progress) progress_ = options.progress(*index_);
    deadline_ = Clock::now() + options.timeout;
    return progress_ == before;
  }
  Clock::time_point deadline() const { return deadline_; }
  bool is_busy() const { return index_.has_value(); }
  int answers() const { return answers_; }
  void kill() { ::kill(pid_, SIGKILL); }
  /// Waits for the end of the process; how it ended.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int requests_ = -1;
  int answers_ = -1;
  std::optional<std::size_t> index_;
  Clock::time_point deadline_;
  std::uint64_t progress_ = 0;  ///< when the time that ends at the deadline began
};

class Pool {
 public:
  Pool(std::size_t count, const PoolOptions& options, const std::function<Worker*()>& make,
       const std::function<void(std::size_t, const PoolAnswer&)>& on_answer)
      : count_(count), options_(options), make_(make), on_answer_(on_answer) {}

  void run() {
    children_.resize(std::min(options_.jobs, count_));
    for (auto& child : children_) child = std::make_unique<Child>(make_, children_);
    while (done_ < count_) {
      wait_for_answers();
      for (auto& child : children_) {
        if (child && child->is_late(options_)) replace_late(child);
      }
    }
  }

 private:
  using ChildPtr = std::unique_ptr<Child>;

  void wait_for_answers() {
    std::vector<pollfd> fds;
    std::vector<ChildPtr*> owners;
    auto next = Clock::now() + std::chrono::seconds(10);
    for (ChildPtr& child : children_) {
      if (!child) continue;
      fds.push_back({child->answers(), POLLIN, 0});
      owners.push_back(&child);
      if (child->is_busy()) next = std::min(next, child->deadline());
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
    ::poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(left, 0) + 1));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) take_message(*owners[i]);
    }
  }

  void take_message(ChildPtr& child) {
    const std::optional<Message> message = receive(child->answers());
    if (!message) {
      replace_dead(child);
      return;
    }
    if (message->tag == kRefused) {
      throw Failure(message->text.at(0) - '0', message->text.substr(1));
    }
    if (message->tag == kAnswer) answer(child->take_index(), {message->text, ""});
    give_next(child);
  }

  void answer(std::optional<std::size_t> index, const PoolAnswer& answer) {
    if (!index) return;
    ++done_;
    on_answer_(*index, answer);
  }

  void give_next(ChildPtr& child) {
    if (next_ < count_) {
      child->give(next_++, options_);
    } else {
      child.reset();
    }
  }

  void replace_dead(ChildPtr& child) {
    const std::string death = death_text(child->wait());
    const std::optional<std::size_t> index = child->take_index();
    if (!index)
      wrong_request("a worker ", death,
                    " while it loaded the plugins and libraries that were asked for");
    child.reset();
    answer(index, {"", death});
    if (next_ < count_) child = std::make_unique<Child>(make_, children_);
  }

  void replace_late(ChildPtr& child) {
    child->kill();
    child->wait();
    const std::optional<std::size_t> index = child->take_index();
    child.reset();
    answer(index, {"", text("gave no result within ", options_.timeout.count(), " s")});
    if (next_ < count_) child = std::make_unique<Child>(make_, children_);
  }

  std::size_t count_;
  const PoolOptions& options_;
  const std::function<Worker*()>& make_;
  const std::function<void(std::size_t, const PoolAnswer&)>& on_answer_;
  std::vector<ChildPtr> children_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes)
    : bytes_(bytes),
      data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (data_ == MAP_FAILED) run_failed("no memory for what workers tell: ", bytes, " bytes");
}
SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

void run_in_workers(std::size_t count, const PoolOptions& options,
                    const std::function<Worker*()>& make,
                    const std::function<void(std::size_t, const PoolAnswer&)>& on_answer) {
  Pool(count, options, make, on_answer).run();
}

}  // namespace backplane::cli
