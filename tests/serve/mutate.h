// Mutation: small random changes to a text, as hostile and broken clients make them; a function of the seed.
#pragma once
#include <random>
#include <string>
#include <vector>

namespace weft {

inline std::string mutated(std::string text, uint64_t seed, const std::vector<std::string>& dictionary) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return size_t(random() % std::max<size_t>(n, 1)); };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0: text.insert(at, 1, char(random())); break;
      case 1: text.erase(at, 1 + below(8)); break;
      case 2:
        if (at < text.size()) text[at] = char(uint8_t(text[at]) ^ (1u << below(8)));
        break;
      case 3: text.insert(at, dictionary[below(dictionary.size())]); break;
      case 4: text.insert(at, text.substr(below(text.size() + 1), below(40))); break;
      default: text.resize(at); break;
    }
  }
  return text;
}

}  // namespace weft
