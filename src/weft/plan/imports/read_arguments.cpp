// The arguments of a command as flat entries, out of a file of arguments or a launch script.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/plan/imports/config_entry.h"

namespace weft::plan {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
// An option, long or short; negative numbers are values.
bool is_argument(std::string_view word) { return word.starts_with("--") && word.size() > 2; }
bool is_option(std::string_view word) {
  return is_argument(word) ||
         (word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.');
}
// The name in $NAME, ${NAME} or ${NAME[@]}, where that is the whole word.
std::string variable_of(std::string_view word) {
  if (!word.starts_with('$')) return {};
  word.remove_prefix(word.starts_with("${") ? 2 : 1);
  size_t n = 0;
  while (n < word.size() && is_name_char(word[n])) ++n;
  const std::string_view rest = word.substr(n);
  return rest.empty() || rest == "}" || rest == "[@]}" || rest == "[*]}" ? std::string(word.substr(0, n)) : "";
}

// A word of a script, with the variables that it assigns in place of their names; others stay as they stand.
struct ShellWord {
  std::string text;
  int line = 0;
  bool is_end = false;  // of a command
};

// Enough of a shell's grammar to see words: quotes, comments, continued lines, $NAME, ${NAME}, ${NAME:-otherwise},
// NAME=value and NAME=(...).
class Script {
 public:
  Script(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::vector<ShellWord> words() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        if (parentheses_ == 0) end();
        ++line_, ++at_;
      } else if (is_space(c)) {
        ++at_;
      } else if (c == '\\' && is_newline(at_ + 1)) {
        skip_line();
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (kOperators.find(c) != kOperators.npos) {
        if (c == '(') ++parentheses_;
        if (c == ')' && parentheses_ > 0) --parentheses_;
        end(), ++at_;
      } else {
        word();
      }
    }
    end();
    return std::move(words_);
  }
  // Whether the words of this variable were seen where it was assigned.
  bool holds_arguments(const std::string& name) const { return lists_.contains(name); }

 private:
  static constexpr std::string_view kOperators = ";|&<>()";
  static constexpr size_t kLongestWord = 1 << 16, kMostBytes = 4 << 20;  // with values in place of names

  bool is_newline(size_t i) const { return text_.substr(i).starts_with('\n') || text_.substr(i).starts_with("\r\n"); }
  void skip_line() { at_ = text_.find('\n', at_) + 1, ++line_; }
  void end() { words_.push_back({.text = {}, .line = line_, .is_end = true}); }
  [[noreturn]] void fail(int line, std::string_view what) const {
    throw UsageError("{}, line {}: {}", source_, line, what);
  }

  void word() {
    ShellWord w{.text = {}, .line = line_};
    char quote = 0;
    bool was_quoted = false;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (quote == 0 && (is_space(c) || kOperators.find(c) != kOperators.npos)) break;
      if (c == '\\' && quote != '\'' && is_newline(at_ + 1)) {
        skip_line();
        if (quote == 0) break;
        w.text += ' ';
        continue;
      }
      if (c == '\n') ++line_;
      if (quote == 0 && (c == '"' || c == '\'')) {
        quote = c, was_quoted = true, ++at_;
      } else if (quote != 0 && c == quote) {
        quote = 0, ++at_;
      } else if (c == '\\' && quote != '\'' && at_ + 1 < text_.size()) {
        w.text += text_[at_ + 1], at_ += 2;
      } else if (c == '$' && quote != '\'') {
        w.text += variable();
        if (w.text.size() > kLongestWord) fail(w.line, "a variable has grown too long");
      } else {
        w.text += c, ++at_;
      }
    }
    if (quote != 0) fail(w.line, fmt::format("a quote {} is not closed", quote));
    num_bytes_ += w.text.size();
    if (num_bytes_ > kMostBytes) fail(w.line, "its variables have grown too many and too long");
    if (!assign(w)) add(std::move(w), was_quoted);
  }

  // What quotes hold together may be several arguments.
  void add(ShellWord w, bool is_list) {
    if (!is_list || !is_argument(w.text.substr(std::min(w.text.find_first_not_of(" \t\r\n"), w.text.size())))) {
      words_.push_back(std::move(w));
      return;
    }
    std::string part;
    const auto flush = [&] {
      if (!part.empty()) words_.push_back({.text = std::exchange(part, {}), .line = w.line});
    };
    for (const char c : w.text) {
      if (is_space(c))
        flush();
      else if (c != '\'' && c != '"')
        part += c;
    }
    flush();
  }

  // At '$': its value, or itself where the script does not say it.
  std::string variable() {
    const size_t begin = at_++;
    if (at_ < text_.size() && (text_[at_] == '(' || text_[at_] == '{')) {
      at_ = after_bracket(at_);
    } else {
      while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
      if (at_ == begin + 1 && at_ < text_.size() && (text_[at_] == '@' || text_[at_] == '*')) ++at_;
    }
    const std::string_view whole = text_.substr(begin, at_ - begin);
    std::string_view name = whole.substr(1), otherwise = "$";
    if (name.starts_with('{')) {
      name = name.substr(1, name.size() - 2);
      if (const size_t colon = name.find(':'); colon != name.npos && colon + 1 < name.size()) {
        if (name[colon + 1] == '-' || name[colon + 1] == '=') otherwise = name.substr(colon + 2);
        name = name.substr(0, colon);
      }
    }
    if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
    return std::string(otherwise.find('$') == otherwise.npos ? otherwise : whole);
  }

  size_t after_bracket(size_t open) const {
    const char left = text_[open], right = left == '(' ? ')' : '}';
    int depth = 0;
    for (size_t i = open; i < text_.size() && text_[i] != '\n'; ++i) {
      depth += text_[i] == left ? 1 : text_[i] == right ? -1 : 0;
      if (depth == 0) return i + 1;
    }
    fail(line_, fmt::format("a bracket {} is not closed", left));
  }

  // NAME=value: a value with arguments is words like any other, else it is remembered.
  bool assign(const ShellWord& w) {
    const size_t equals = w.text.find('=');
    if (equals == std::string::npos) return false;
    std::string name = w.text.substr(0, equals);
    if (name.ends_with('+')) name.pop_back();
    if (name.empty() || !std::ranges::all_of(name, is_name_char)) return false;
    ShellWord value{.text = w.text.substr(equals + 1), .line = w.line};
    if (value.text.find("--") != value.text.npos || (value.text.empty() && text_.substr(at_).starts_with('('))) {
      end();
      add(std::move(value), true);
      lists_.insert(name);
      variables_.erase(name);
    } else {
      variables_.insert_or_assign(name, std::move(value.text));
    }
    return true;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0, num_bytes_ = 0;
  int line_ = 1, parentheses_ = 0;
  std::vector<ShellWord> words_;
  std::map<std::string, std::string, std::less<>> variables_;
  std::set<std::string> lists_;
};

// Words as keys and values.
class Arguments {
 public:
  explicit Arguments(const Script& script) : script_(script) {}

  // The words of one command.
  void command(std::span<const ShellWord> words) {
    const bool is_program =
        std::ranges::any_of(words, [](const ShellWord& w) { return is_argument(w.text) || w.text.ends_with(".py"); });
    if (!is_program) return;
    for (size_t i = 0; i < words.size();) {
      const ShellWord& w = words[i++];
      if (!is_argument(w.text)) {
        lone(w);
        continue;
      }
      const size_t equals = w.text.find('=');
      std::vector<std::string> values;
      if (equals != std::string::npos) values.push_back(w.text.substr(equals + 1));
      for (; equals == std::string::npos && i < words.size() && is_value(words[i].text); ++i) {
        if (!values.empty() && !variable_of(words[i].text).empty()) break;  // more likely arguments of its own
        values.push_back(words[i].text);
      }
      add(w.text.substr(0, equals), values, w.line);
    }
  }
  Config take() { return std::move(config_); }

 private:
  bool is_value(const std::string& word) const {
    const std::string name = variable_of(word);
    return !is_option(word) && !word.ends_with(".py") && !(script_.holds_arguments(name)) && word != "$@" &&
           word.find("[@]") == word.npos;
  }

  // A variable whose arguments are not in the file.
  void lone(const ShellWord& w) {
    const std::string name = variable_of(w.text);
    if (w.text.starts_with('$') && !script_.holds_arguments(name)) add(w.text, {}, w.line);
  }

  void add(const std::string& key, const std::vector<std::string>& values, int line) {
    ConfigEntry entry{.key = excerpt(key), .value = true, .text = {}, .line = line};
    entry.text = fmt::format("{}", fmt::join(values, " "));
    entry.is_resolved = !key.starts_with('$') && entry.text.find_first_of("$`") == std::string::npos;
    if (values.size() == 1) {
      entry.value = std::visit([](const auto& x) -> Toml::Value { return x; }, scalar_of(values[0]));
    } else if (!values.empty()) {
      std::vector<Toml::Scalar> items;
      for (const std::string& value : values) items.push_back(scalar_of(value));
      entry.value = std::move(items);
    }
    const auto same = place_.find(entry.key);
    if (same == place_.end()) {
      if (int64_t(config_.size()) == kMostConfigValues)
        throw UsageError("line {}: there are too many arguments", line);
      place_.emplace(entry.key, config_.size());
      config_.push_back(std::move(entry));
    } else {
      entry.times = config_[same->second].times + 1;
      config_[same->second] = std::move(entry);
    }
  }

  const Script& script_;
  Config config_;
  std::map<std::string, size_t> place_;
};

}  // namespace

Config read_arguments(std::string_view text, const std::string& source) {
  if (text.size() > kMostConfigBytes) throw UsageError("{}: it is larger than {} bytes", source, kMostConfigBytes);
  Script script(text, source);
  const std::vector<ShellWord> words = script.words();
  Arguments arguments(script);
  for (auto begin = words.begin(); begin != words.end();) {
    const auto last = std::find_if(begin, words.end(), [](const ShellWord& w) { return w.is_end; });
    arguments.command({begin, last});
    begin = last + 1;
  }
  Config config = arguments.take();
  if (config.empty()) throw UsageError("{}: there are no arguments, as in --num-layers 24", source);
  return config;
}

}  // namespace weft::plan
