// hardware_of_device: words of the name against models of the catalogue.
#include "weft/plan/device_hardware.h"

#include <cctype>
#include <cmath>

namespace weft::plan {
namespace {

// "NVIDIA GeForce RTX 4090 D" in small letters, at its spaces and signs cut.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

// One word, or two that belong together; a single letter behind them makes another model.
bool has_model(const std::vector<std::string>& words, const std::string& model) {
  for (size_t i = 0; i < words.size(); ++i)
    for (const size_t count : {1, 2}) {
      if (i + count > words.size()) continue;
      const std::string joined = count == 1 ? words[i] : words[i] + words[i + 1];
      const bool is_other = i + count < words.size() && words[i + count].size() == 1;
      if (joined == model && !is_other) return true;
    }
  return false;
}

}  // namespace

std::optional<Hardware> hardware_of_device(std::string_view device_name, double memory_bytes) {
  const std::vector<std::string> words = words_of(device_name);
  std::optional<Hardware> nearest;
  for (const std::string& name : hardware_names()) {
    if (!has_model(words, name.substr(0, name.find('-')))) continue;
    Hardware h = find_hardware(name);
    if (!nearest || std::abs(h.memory_bytes - memory_bytes) < std::abs(nearest->memory_bytes - memory_bytes))
      nearest = std::move(h);
  }
  return nearest;
}

}  // namespace weft::plan
