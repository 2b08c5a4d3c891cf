// Rewards: rules on texts.
#include "weft/train/policy/rewards.h"

#include <algorithm>
#include <optional>

#include "weft/base/error.h"
#include "weft/train/policy/command_reward.h"

namespace weft {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ')'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A number in the one way in which equal ones are written alike: "-0012.50" is "-12.5". digits: with commas and at
// most one point, which it does not end with.
std::string plain_number(std::string_view digits, bool is_negative) {
  std::string number;
  for (const char c : digits)
    if (c != ',') number += c;
  if (number.find('.') != std::string::npos) {
    while (number.back() == '0') number.pop_back();
    if (number.back() == '.') number.pop_back();
  }
  const size_t first = std::min(number.find_first_not_of('0'), number.size());
  number.erase(0, first);
  if (number.empty() || number.front() == '.') number.insert(0, "0");
  return is_negative && number != "0" ? "-" + number : number;
}

// The last number of a text, and where it stands.
struct FoundNumber {
  std::string plain;
  size_t begin, end;
};
std::optional<FoundNumber> last_number(std::string_view text) {
  const size_t last = text.find_last_of("0123456789");
  if (last == std::string_view::npos) return {};
  size_t begin = last;
  bool has_point = false;
  const auto belongs = [&](size_t i) {
    if (is_digit(text[i])) return true;
    const bool is_between = i > 0 && is_digit(text[i - 1]);
    if (text[i] == ',') return is_between;
    return text[i] == '.' && !has_point && (is_between || i == 0 || !is_word(text[i - 1]));
  };
  while (begin > 0 && belongs(begin - 1)) has_point |= text[--begin] == '.';
  const bool is_negative = begin > 0 && text[begin - 1] == '-' && (begin == 1 || !is_word(text[begin - 2]));
  return FoundNumber{plain_number(text.substr(begin, last + 1 - begin), is_negative), begin - is_negative, last + 1};
}

// What the last \boxed{} holds, braces in it balanced.
std::optional<std::string_view> last_boxed(std::string_view text) {
  constexpr std::string_view kBegin = "\\boxed{";
  const size_t at = text.rfind(kBegin);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + kBegin.size());
  int depth = 1;
  for (size_t i = 0; i < rest.size(); ++i) {
    depth += rest[i] == '{' ? 1 : rest[i] == '}' ? -1 : 0;
    if (depth == 0) return rest.substr(0, i);
  }
  return {};
}

// A text that is a number and nothing more as plain_number has it; else without white space.
std::string comparable(std::string_view text) {
  text = trimmed(text);
  if (const auto number = last_number(text); number && number->begin == 0 && number->end == text.size())
    return number->plain;
  std::string all;
  for (const char c : text)
    if (!is_space(c)) all += c;
  return all;
}

class RuleReward final : public Reward {
 public:
  using Rule = double (*)(std::string_view text, std::string_view expected);
  explicit RuleReward(Rule rule) : rule_(rule) {}
  std::vector<double> score(std::span<const ScoredAnswer> answers) override {
    std::vector<double> all;
    for (const ScoredAnswer& a : answers) all.push_back(rule_(a.text, a.prompt->answer));
    return all;
  }

 private:
  Rule rule_;
};

double exact_reward(std::string_view text, std::string_view expected) { return trimmed(text) == trimmed(expected); }
double contains_reward(std::string_view text, std::string_view expected) {
  return text.find(trimmed(expected)) != std::string_view::npos;
}

}  // namespace

void require_answers(const PolicyConfig& config, const std::vector<Prompt>& prompts, std::string_view key) {
  if (config.reward == RewardKind::command || config.reward == RewardKind::model) return;
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].answer.empty())
      throw UsageError(
          "{}: example {} has no \"answer\" that answers could be compared with: write some, or have a program score "
          "them (the rewards \"command\" and \"model\")",
          key, i + 1);
}

ScoredAnswer scored_answer(const Prompt& prompt, const GivenAnswer& answer, const Tokenizer& tokenizer) {
  std::span<const int32_t> tokens = answer.tokens;
  if (!answer.is_cut && !tokens.empty()) tokens = tokens.first(tokens.size() - 1);  // what ended it
  return {&prompt, tokenizer.decode(tokens), answer.is_cut};
}

double number_reward(std::string_view text, std::string_view expected) {
  const auto a = last_number(text), b = last_number(expected);
  return a && b && a->plain == b->plain;
}

double boxed_reward(std::string_view text, std::string_view expected) {
  const auto boxed = last_boxed(text);
  return boxed && comparable(*boxed) == comparable(last_boxed(expected).value_or(expected));
}

std::unique_ptr<Reward> make_reward(const PolicyConfig& config) {
  switch (config.reward) {
    case RewardKind::command: return std::make_unique<CommandReward>(config);
    case RewardKind::exact: return std::make_unique<RuleReward>(exact_reward);
    case RewardKind::boxed: return std::make_unique<RuleReward>(boxed_reward);
    case RewardKind::contains: return std::make_unique<RuleReward>(contains_reward);
    case RewardKind::model: check(false, "a model's rewards are RewardModel's"); break;
    case RewardKind::number: break;
  }
  return std::make_unique<RuleReward>(number_reward);
}

}  // namespace weft
