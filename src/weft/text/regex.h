// Regex: the regular expressions of tokenizer files, run by PCRE2 with limits, so that no text makes them run away.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weft/base/function_ref.h"

namespace weft {

// Written in the syntax that tokenizer files use (Oniguruma's, as Hugging Face does): \s and \w are Unicode's, ^ and
// $ match at lines. What PCRE2 would read otherwise is translated or refused. Immutable and safe to share.
class Regex {
 public:
  // Throws Error that names `origin` and the pattern when it cannot be used.
  Regex(std::string_view pattern, std::string_view origin);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }

 private:
  friend class RegexMatcher;
  struct Code;
  std::string pattern_;
  std::unique_ptr<const Code> code_;
};

// Applies a Regex, which must outlive it, to one text after the other; belongs to one thread.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);
  ~RegexMatcher();
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  // Calls visit(begin, end) for every match, from left to right, without overlap; a match may be empty. Bytes that
  // are not UTF-8 never match, and end the text before them. Throws Error when a limit is reached.
  void for_each_match(std::string_view text, FunctionRef<void(size_t begin, size_t end)> visit);

 private:
  struct State;
  bool search(std::string_view text, size_t from);

  const Regex& regex_;
  std::unique_ptr<State> state_;
};

// The pattern as PCRE2 shall read it. Throws Error for what would silently mean something else.
std::string translate_pattern(std::string_view pattern, std::string_view origin);

}  // namespace weft
