// CommandReward: lines there and lines back, at the same time.
#include "weft/train/policy/command_reward.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

constexpr size_t kMostOfALine = 4096;  // that is read: a number

std::string line_of(const ScoredAnswer& a) {
  const nlohmann::json text = a.text;
  return fmt::format("{{\"completion\":{},\"cut\":{},\"example\":{}}}\n",
                     text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), a.is_cut,
                     a.prompt->example);
}

}  // namespace

void CommandReward::fail(const std::string& what) const {
  throw Error("the reward program {}: {}", config_.command, what);
}

double CommandReward::number_of(std::string_view line) const {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || end != line.data() + line.size() || !std::isfinite(number))
    fail(fmt::format(
        "it wrote \"{}\", which is no number: it must write one line with a number for each line it reads",
        line.substr(0, 80)));
  return number;
}

std::vector<double> CommandReward::score(std::span<const ScoredAnswer> answers) {
  using Clock = std::chrono::steady_clock;
  if (answers.empty()) return {};
  if (!program_) program_.emplace(config_.command, ChildProcess::Pipes::to_and_from);
  pollfd early{program_->output(), POLLIN, 0};
  if (!read_.empty() || (::poll(&early, 1, 0) > 0 && (early.revents & POLLIN) != 0))
    fail("it writes before it is asked: it must write one line for each line it reads");
  std::string out;
  for (const ScoredAnswer& a : answers) out += line_of(a);
  std::vector<double> numbers;
  const auto until = Clock::now() + std::chrono::duration<double>(config_.command_timeout_s);
  for (size_t written = 0; numbers.size() < answers.size();) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0)
      fail(fmt::format("it has scored {} of {} answers in {:g} s: write a larger rl.command_timeout_s",
                       numbers.size(), answers.size(), config_.command_timeout_s));
    pollfd fds[2] = {{program_->output(), POLLIN, 0}, {program_->input(), POLLOUT, 0}};
    ::poll(fds, written < out.size() ? 2 : 1, int(std::min(left * 1e3 + 1, 1e6)));
    if (written < out.size() && fds[1].revents != 0) {
      const ssize_t sent =
          ::send(program_->input(), out.data() + written, out.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) written += size_t(sent);
      // What it has said before it ended is still read.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) written = out.size();
    }
    if (fds[0].revents == 0) continue;
    char piece[4096];
    const ssize_t got = ::read(program_->output(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const auto status = program_->wait(std::chrono::seconds(5));
      fail(fmt::format("it ended ({}) when it had scored {} of {} answers",
                       status ? status->describe() : "its output is closed", numbers.size(), answers.size()));
    }
    read_.append(piece, size_t(got));
    for (size_t end; (end = read_.find('\n')) != std::string::npos && numbers.size() < answers.size();) {
      numbers.push_back(number_of(std::string_view(read_).substr(0, end)));
      read_.erase(0, end + 1);
    }
    if (read_.size() > kMostOfALine) fail("it writes lines that are too long for a number");
  }
  return numbers;
}

}  // namespace weft
