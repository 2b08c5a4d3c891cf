// JsonText: rules that are made when first asked for, since values hold values.
#include "weft/serve/constrain/json_text.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/serve/constrain/regex_grammar.h"
#include "weft/text/utf8.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostDigits = 18, kMostFraction = 17;
constexpr uint64_t kLargest = 999'999'999'999'999'999;  // of 18 digits

// What stands in a string as it is.
CodePoints plain_characters() { return complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}); }

}  // namespace

Element JsonText::rule_named(const char* name, std::optional<Element>& known, void (JsonText::*make)(RuleId)) {
  if (!known) {
    const RuleId rule = builder_.add_rule(name);
    known = GrammarBuilder::rule(rule);
    (this->*make)(rule);
  }
  return *known;
}

Element JsonText::value() { return rule_named("value", value_, &JsonText::make_value); }
Element JsonText::object() { return rule_named("object", object_, &JsonText::make_object); }
Element JsonText::array() { return rule_named("array", array_, &JsonText::make_array); }
Element JsonText::character() { return rule_named("character", character_, &JsonText::make_character); }
Element JsonText::space() { return rule_named("space", space_, &JsonText::make_space); }

void JsonText::make_value(RuleId rule) {
  for (const Element& one : {object(), array(), string(0, kUnbounded), number({})})
    builder_.add_alternative(rule, {one});
  for (const char* word : {"true", "false", "null"}) builder_.add_alternative(rule, builder_.literal(word));
}

Sequence JsonText::punctuation(char c) { return builder_.literal(std::string_view(&c, 1)) + Sequence{space()}; }

void JsonText::make_object(RuleId rule) {
  const Sequence member = Sequence{string(0, kUnbounded), space()} + punctuation(':') + Sequence{value(), space()};
  const Element more = builder_.repeat(punctuation(',') + member, 0, kUnbounded);
  builder_.add_alternative(
      rule, punctuation('{') + Sequence{builder_.optional(member + Sequence{more})} + builder_.literal("}"));
}

void JsonText::make_array(RuleId rule) {
  const Sequence item{value(), space()};
  const Element more = builder_.repeat(punctuation(',') + item, 0, kUnbounded);
  builder_.add_alternative(
      rule, punctuation('[') + Sequence{builder_.optional(item + Sequence{more})} + builder_.literal("]"));
}

void JsonText::make_space(RuleId rule) {
  builder_.add_alternative(rule, {});
  builder_.add_alternative(rule, builder_.literal(" "));
  builder_.add_alternative(
      rule,
      builder_.literal("\n") + Sequence{builder_.repeat({builder_.bytes(ByteSet().set(' ').set('\t'))}, 0, 20)});
}

void JsonText::make_character(RuleId rule) {
  builder_.add_alternative(rule, {builder_.code_points(plain_characters())});
  const auto one_of = [&](std::string_view bytes) {
    ByteSet set;
    for (const char c : bytes) set.set(uint8_t(c));
    return builder_.bytes(set);
  };
  const Element hex = one_of("0123456789abcdefABCDEF"), u = one_of("u"), backslash = one_of("\\"), d = one_of("dD");
  builder_.add_alternative(rule, {backslash, one_of("\"\\/bfnrt")});
  builder_.add_alternative(rule, {backslash, u, one_of("0123456789abcefABCEF"), hex, hex, hex});
  builder_.add_alternative(rule, {backslash, u, d, one_of("01234567"), hex, hex});
  // A pair of surrogates is one character.
  builder_.add_alternative(
      rule, {backslash, u, d, one_of("89abAB"), hex, hex, backslash, u, d, one_of("cdefCDEF"), hex, hex});
}

Element JsonText::string(int64_t min, int64_t max) {
  const Sequence quote = builder_.literal("\"");
  return builder_.one_of({quote + Sequence{builder_.repeat({character()}, min, max)} + quote});
}

Element JsonText::character_of(const CodePoints& set) {
  std::vector<Sequence> ways{{builder_.code_points(intersection(set, plain_characters()))}};
  static constexpr std::pair<char32_t, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  ByteSet escaped;
  for (const auto& [c, letter] : kShort) {
    if (!intersection(set, {{c, c}}).empty()) escaped.set(uint8_t(letter));
  }
  const Sequence backslash = builder_.literal("\\");
  if (escaped.any()) ways.push_back(backslash + Sequence{builder_.bytes(escaped)});
  for (const CodePointRange& range : intersection(set, {{0, 0x1F}})) {
    for (char32_t c = range.first; c <= range.last; ++c)
      ways.push_back(builder_.literal(fmt::format("\\u{:04x}", uint32_t(c))));
  }
  return builder_.one_of(ways);
}

Element JsonText::string_of(std::string_view regex, bool searches) {
  const Element inside = regex_element(
      builder_, regex, {.searches = searches, .character = [this](GrammarBuilder&, const CodePoints& set) {
                          return character_of(set);
                        }});
  const Sequence quote = builder_.literal("\"");
  return builder_.one_of({quote + Sequence{inside} + quote});
}

Element JsonText::string_but(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const Sequence quote = builder_.literal("\"");
  return builder_.one_of({quote + Sequence{GrammarBuilder::rule(anything_but(texts, 0, texts.size(), 0))} + quote});
}

// Of sorted texts that agree in their first `depth` bytes, which were read: what makes it another text.
RuleId JsonText::anything_but(const std::vector<std::string>& texts, size_t begin, size_t end, size_t depth) {
  const RuleId rule = builder_.add_rule();
  const Element rest = builder_.repeat({builder_.code_points(plain_characters())}, 0, kUnbounded);
  if (begin < end && texts[begin].size() == depth)
    ++begin;  // here it must not end
  else
    builder_.add_alternative(rule, {});
  CodePoints taken;
  while (begin < end) {
    const CodePoint next = first_code_point(std::string_view(texts[begin]).substr(depth));
    size_t last = begin + 1;
    while (last < end && std::string_view(texts[last]).substr(depth, next.length) ==
                             std::string_view(texts[begin]).substr(depth, next.length))
      ++last;
    taken.push_back({next.value, next.value});
    const Element below = GrammarBuilder::rule(anything_but(texts, begin, last, depth + next.length));
    builder_.add_alternative(rule, {builder_.code_points(intersection(taken, {{next.value, next.value}})), below});
    begin = last;
  }
  builder_.add_alternative(rule, {builder_.code_points(intersection(complement(taken), plain_characters())), rest});
  return rule;
}

Element JsonText::digits(int64_t min, int64_t max) {
  return builder_.repeat({builder_.code_points({{'0', '9'}})}, min, max);
}

// Numbers of as many digits as both have.
Element JsonText::same_length(std::string_view low, std::string_view high) {
  const int64_t rest = int64_t(low.size()) - 1;
  const auto digit = [&](char first, char last) { return builder_.code_points({{char32_t(first), char32_t(last)}}); };
  const bool is_free =
      low.find_first_not_of('0') == std::string_view::npos && high.find_first_not_of('9') == std::string_view::npos;
  if (is_free) return digits(rest + 1, rest + 1);
  if (rest == 0) return digit(low[0], high[0]);
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) return builder_.one_of({{digit(low[0], low[0]), same_length(low_rest, high_rest)}});
  const std::string zeros(size_t(rest), '0'), nines(size_t(rest), '9');
  std::vector<Sequence> ways{{digit(low[0], low[0]), same_length(low_rest, nines)},
                             {digit(high[0], high[0]), same_length(zeros, high_rest)}};
  if (high[0] - low[0] > 1) ways.push_back({digit(char(low[0] + 1), char(high[0] - 1)), digits(rest, rest)});
  return builder_.one_of(ways);
}

Element JsonText::natural(uint64_t min, uint64_t max) {
  std::vector<Sequence> ways;
  uint64_t first = 0, last = 9;  // of the numbers with so many digits
  for (int64_t n = 1; n <= kMostDigits; ++n) {
    const uint64_t low = std::max(first, min), high = std::min(last, max);
    if (low <= high) ways.push_back({same_length(fmt::to_string(low), fmt::to_string(high))});
    first = last + 1, last = last * 10 + 9;
  }
  return builder_.one_of(ways);
}

Element JsonText::integer(const NumberBounds& bounds) {
  if (!bounds.min && !bounds.max) {
    const Element size =
        builder_.one_of({builder_.literal("0"), {builder_.code_points({{'1', '9'}}), digits(0, kMostDigits - 1)}});
    return builder_.one_of({{builder_.optional(builder_.literal("-")), size}});
  }
  const int64_t least = -int64_t(kLargest), most = int64_t(kLargest);
  int64_t min = std::max(bounds.min.value_or(least), least), max = std::min(bounds.max.value_or(most), most);
  min += bounds.excludes_min, max -= bounds.excludes_max;
  std::vector<Sequence> ways;
  if (max >= 0 && min <= max) ways.push_back({natural(uint64_t(std::max<int64_t>(min, 0)), uint64_t(max))});
  if (min < 0 && min <= max)
    ways.push_back(builder_.literal("-") + Sequence{natural(uint64_t(-std::min<int64_t>(max, -1)), uint64_t(-min))});
  return builder_.one_of(ways);
}

// Numbers that are not negative, behind a sign.
void JsonText::add_reals(std::string_view sign, const NumberBounds& bounds, std::vector<Sequence>& out) {
  const int64_t min = std::max<int64_t>(bounds.min.value_or(0), 0);
  const int64_t max = std::min<int64_t>(bounds.max.value_or(int64_t(kLargest)), int64_t(kLargest));
  const bool excludes_min = bounds.excludes_min && bounds.min && *bounds.min >= 0;
  const Sequence point = builder_.literal(".");
  const Sequence any_fraction = point + Sequence{digits(1, kMostFraction)};
  const Element zero = builder_.bytes(ByteSet().set('0'));
  const auto whole = [&](int64_t from, int64_t to) { return natural(uint64_t(from), uint64_t(to)); };
  const Sequence begin = builder_.literal(sign);
  if (min > max) return;
  // Strictly above the lower bound, and below the upper one: those whose whole part is neither.
  const int64_t first = min + excludes_min, last = bounds.max ? max - 1 : max;
  if (first <= last) out.push_back(begin + Sequence{whole(first, last), builder_.optional(any_fraction)});
  if (excludes_min && min < max) {
    const Sequence some = point + Sequence{builder_.repeat({zero}, 0, kMostFraction - 9),
                                           builder_.code_points({{'1', '9'}}), digits(0, 8)};
    out.push_back(begin + Sequence{whole(min, min)} + some);
  }
  if (bounds.max && !bounds.excludes_max && !(excludes_min && min == max))
    out.push_back(begin + Sequence{whole(max, max),
                                   builder_.optional(point + Sequence{builder_.repeat({zero}, 1, kMostFraction)})});
}

Element JsonText::number(const NumberBounds& bounds) {
  if (!bounds.min && !bounds.max) {
    const Element fraction = builder_.optional(builder_.literal(".") + Sequence{digits(1, kMostFraction)});
    const Sequence e{builder_.bytes(ByteSet().set('e').set('E')),
                     builder_.optional({builder_.bytes(ByteSet().set('+').set('-'))}), digits(1, 2)};
    return builder_.one_of({{integer({}), fraction, builder_.optional(e)}});
  }
  std::vector<Sequence> ways;
  if (!bounds.max || *bounds.max >= 0) add_reals("", bounds, ways);
  if (!bounds.min || *bounds.min < 0) {
    // -x for x between -max and -min.
    NumberBounds mirrored;
    mirrored.excludes_min = bounds.excludes_max, mirrored.excludes_max = bounds.excludes_min;
    if (bounds.max) mirrored.min = -*bounds.max;
    if (bounds.min) mirrored.max = -*bounds.min;
    add_reals("-", mirrored, ways);
  }
  return builder_.one_of(ways);
}

}  // namespace weft::constrain
