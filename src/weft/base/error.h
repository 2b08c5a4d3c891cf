// Errors: what people read when something is wrong, and `check`, which throws them with the place in the code.
#pragma once
#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// Something failed that is not the user's wording: one sentence naming the culprit and the remedy. Exit status 1.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string message) : std::runtime_error(std::move(message)) {}
  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// A mistake in a command line or a recipe: names the key, the value and what to write instead. Exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Another rank failed first; this rank only stopped with it, so its message must not hide the cause.
class AbortedError : public Error {
 public:
  using Error::Error;
};

// A format string that remembers where it was written.
template <class... Args>
struct LocatedFormat {
  fmt::format_string<Args...> format;
  std::source_location where;
  template <class S>
  consteval LocatedFormat(const S& text, std::source_location place = std::source_location::current())
      : format(text), where(place) {}
};

// Throws Error "message (file.cpp:12)" when an internal contract is broken. For a user's mistake throw UsageError.
template <class... Args>
void check(bool condition, std::type_identity_t<LocatedFormat<Args...>> text, Args&&... args) {
  if (condition) [[likely]]
    return;
  std::string_view file = text.where.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);  // npos + 1 == 0
  throw Error(
      fmt::format("{} ({}:{})", fmt::format(text.format, std::forward<Args>(args)...), file, text.where.line()));
}

}  // namespace weft
