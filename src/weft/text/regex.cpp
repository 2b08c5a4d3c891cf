// Regex: translation of patterns, and matching by PCRE2's compiler to machine code.
#include "weft/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "weft/base/error.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

constexpr size_t kMostPatternBytes = 1 << 16;
constexpr uint32_t kMostSteps = 20'000'000;  // of backtracking in one search, beside those the text's length needs
constexpr uint32_t kMostHeapKibibytes = 1 << 18;

// What Oniguruma means by \s and \w, to be written inside a class: White_Space; letters, marks, numbers, connectors.
constexpr std::string_view kSpaceSet = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWordSet = R"(\p{L}\p{M}\p{N}\p{Pc})";

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view origin) : pattern_(pattern), origin_(origin) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else {
        if (c == '[') open_class();
        if (rest().starts_with("(*")) refuse("(*");
        if (at_ < pattern_.size() && c != '[') take(1);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  void take(size_t count) {
    out_ += rest().substr(0, count);
    at_ += count;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error("{}: the regular expression \"{}\" uses {}, which weft does not read; rewrite it without", origin_,
                pattern_, what);
  }

  // After '[', '^' and a ']' that stands first belong to the class itself.
  void open_class() {
    in_class_ = true;
    take(1);
    if (rest().starts_with('^')) take(1);
    if (rest().starts_with(']')) take(1);
  }

  void inside_class(char c) {
    if (rest().starts_with("[:")) {
      const size_t end = rest().find(":]");
      if (end == std::string_view::npos) refuse("'[:' without ':]'");
      return take(end + 2);
    }
    if (c == '[') refuse("a class inside a class");
    if (rest().starts_with("&&")) refuse("'&&' in a class");
    if (c == ']') in_class_ = false;
    take(1);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a '\\' at its end");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's': return set(kSpaceSet, false);
      case 'S': return set(kSpaceSet, true);
      case 'w': return set(kWordSet, false);
      case 'W': return set(kWordSet, true);
      case 'u': return code_point();
      case 'h':
      case 'H':
      case 'C':
      case 'K':
      case 'G': return refuse(fmt::format("\\{}", c));
      default: take(2);
    }
  }

  void set(std::string_view members, bool is_negated) {
    if (in_class_ && is_negated) refuse("\\S or \\W in a class");
    at_ += 2;
    if (in_class_)
      out_ += members;
    else
      out_ += fmt::format("[{}{}]", is_negated ? "^" : "", members);
  }

  void code_point() {
    const std::string_view digits = rest().substr(2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("\\u without four hexadecimal digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  std::string_view pattern_, origin_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string message_of(int code) {
  char text[256];
  const int length = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return length < 0 ? fmt::format("error {}", code) : std::string(text, size_t(length));
}

}  // namespace

std::string translate_pattern(std::string_view pattern, std::string_view origin) {
  return Translator(pattern, origin).run();
}

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : pcre(compiled) {}
  ~Code() { pcre2_code_free(pcre); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* pcre;
  bool is_jit = false;
};

Regex::Regex(std::string_view pattern, std::string_view origin) : pattern_(pattern) {
  if (pattern.size() > kMostPatternBytes)
    throw Error("{}: a regular expression of {} bytes is longer than the {} allowed", origin, pattern.size(),
                kMostPatternBytes);
  const std::string translated = translate_pattern(pattern, origin);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (!code) throw Error("{}: the regular expression \"{}\" is not one: {}", origin, pattern, message_of(error));
  auto owned = std::make_unique<Code>(code);
  owned->is_jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(owned);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct RegexMatcher::State {
  explicit State(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)), context(pcre2_match_context_create(nullptr)) {}
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
};

RegexMatcher::RegexMatcher(const Regex& regex) : regex_(regex), state_(std::make_unique<State>(regex.code_->pcre)) {
  check(state_->data && state_->context, "no memory for matching a regular expression");
  pcre2_set_heap_limit(state_->context, kMostHeapKibibytes);
}

RegexMatcher::~RegexMatcher() = default;

bool RegexMatcher::search(std::string_view text, size_t from) {
  const Regex::Code& code = *regex_.code_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  constexpr uint32_t options = PCRE2_NO_UTF_CHECK;
  if (code.is_jit)
    found = pcre2_jit_match(code.pcre, subject, text.size(), from, options, state_->data, state_->context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state on the heap
    found = pcre2_match(code.pcre, subject, text.size(), from, options | PCRE2_NO_JIT, state_->data, state_->context);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    throw Error("the regular expression \"{}\" gave up on a text of {} bytes: {}", regex_.pattern_, text.size(),
                message_of(found));
  return found >= 0;
}

void RegexMatcher::for_each_match(std::string_view text, FunctionRef<void(size_t, size_t)> visit) {
  const uint64_t steps = kMostSteps + uint64_t(16) * text.size();
  pcre2_set_match_limit(state_->context, uint32_t(std::min<uint64_t>(steps, UINT32_MAX)));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data);
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view part = text.substr(begin, valid_utf8_prefix(text.substr(begin)));
    size_t last_end = std::string_view::npos;
    for (size_t from = 0; from <= part.size() && !part.empty();) {
      if (!search(part, from)) break;
      const size_t first = range[0], last = range[1];
      if (first < from || last < first) break;  // only by constructs that the translator refuses
      from = last;
      if (first == last && last == last_end) {  // no empty match right behind another match
        from += last < part.size() ? first_code_point(part.substr(last)).length : 1;
        continue;
      }
      visit(begin + first, begin + last);
      last_end = last;
    }
    begin += part.size() + 1;  // past the byte that is not UTF-8
  }
}

}  // namespace weft
