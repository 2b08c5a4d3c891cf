// Known patterns: what is known of where each cuts. tests/text holds every claim against random text.
#include "weft/text/pipeline/known_patterns.h"

namespace weft {

std::span<const KnownPattern> known_patterns() {
  static constexpr Divides kWords{.keeps = true, .before_space = true, .behind_newline = true};
  static constexpr Divides kNewlines{.keeps = true, .behind_newline = true};
  static constexpr Divides kRuns{.keeps = true};
  static constexpr KnownPattern kPatterns[] = {
      {kGpt2Pattern, kWords},          {kCl100kPattern, kWords},     {kO200kPattern, kWords},
      {kCl100kDigitPattern, kWords},   {kTekkenPattern, kWords},     {kQwen35Pattern, kWords},
      {kDeepSeekWordsPattern, kWords}, {kNewlinePattern, kNewlines}, {kDigitPattern, kRuns},
      {kDigitsPattern, kRuns},         {kThreeDigitsPattern, kRuns}, {kUpToThreeDigits, kRuns},
      {kCjkKanaPattern, kRuns},        {kFalconSignsPattern, kRuns},
  };
  return kPatterns;
}

Divides divides_of_pattern(std::string_view pattern) {
  for (const KnownPattern& known : known_patterns()) {
    if (known.pattern == pattern) return known.divides;
  }
  return {};
}

}  // namespace weft
