// Golden tables: texts and the ids that another implementation gave for them.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/test_data.h"
#include "weft/text/tokenizer_files.h"

namespace weft {

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string text_data(const std::string& name) { return WEFT_SOURCE_DIR "/tests/text/data/" + name; }

struct GoldenLine {
  std::vector<int32_t> ids;
  std::string text;
};

// A line is "ids |text|"; in the text, \\ is a backslash and \xNN a byte. The first line says where they come from.
inline std::vector<GoldenLine> read_golden(const std::string& name) {
  std::ifstream file(text_data(name));
  EXPECT_TRUE(file) << name;
  std::vector<GoldenLine> lines;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const size_t bar = line.find(" |");
    GoldenLine golden;
    std::istringstream ids(line.substr(0, bar));
    for (int32_t id; ids >> id;) golden.ids.push_back(id);
    for (size_t at = bar + 2; at + 1 < line.size();) {
      if (line[at] != '\\') {
        golden.text += line[at++];
      } else if (line[at + 1] == '\\') {
        golden.text += '\\', at += 2;
      } else {
        golden.text += char(uint8_t(std::stoi(line.substr(at + 2, 2), nullptr, 16)));
        at += 4;
      }
    }
    lines.push_back(std::move(golden));
  }
  return lines;
}

// A tokenizer whose ids are known, and how they were made.
struct GoldenCase {
  std::string name;  // of the golden file
  std::string data;  // the tokenizer: in tests/text/data, or below WEFT_TEST_DATA when it has a '/'
  EncodeOptions options;
  // Whether decoding gives back what was encoded, but for bytes that are not UTF-8: always; or unless the text has
  // the mark that stands for a space, or a special token behind which a space is put; or never.
  enum class Keeps { all, unmarked, nothing } keeps = Keeps::all;

  bool keeps_text(const std::string& text) const {
    const bool is_marked = text.find("\xE2\x96\x81") != text.npos || text.find("<s>") != text.npos;
    return keeps == Keeps::all || (keeps == Keeps::unmarked && !is_marked);
  }
  friend void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name << " (" << c.data << ")"; }
  std::string path() const { return data.find('/') == data.npos ? text_data(data) : test_data(data); }
};

inline std::vector<GoldenCase> golden_cases() {
  using Keeps = GoldenCase::Keeps;
  const EncodeOptions parse{.parse_special = true}, plain{};
  const EncodeOptions special{.add_special = true, .parse_special = true};
  return {
      {"gpt2", "tokenizers/gpt2/tokenizer.json", parse},
      {"gpt2", "tokenizers/gpt2/vocab.bpe", parse},
      {"llama2_json", "tokenizers/llama2/tokenizer.json", parse, Keeps::unmarked},
      {"llama2_model", "tokenizers/llama2/tokenizer.model", plain, Keeps::unmarked},
      {"mistral_v1", "tokenizers/mistral/tokenizer.model.v1", plain, Keeps::unmarked},
      {"mistral_v3", "tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3", plain, Keeps::unmarked},
      {"byte_level", "byte_level.json", parse, Keeps::nothing},  // NFC
      {"byte_level_special", "byte_level.json", special, Keeps::nothing},
      {"bpe_fallback", "bpe_fallback.json", parse, Keeps::unmarked},
      {"bpe_fallback_special", "bpe_fallback.json", special},
      {"bpe_suffix", "bpe_suffix.json", parse, Keeps::nothing},
      {"unigram", "unigram.json", parse, Keeps::nothing},
      {"unigram_special", "unigram.json", special, Keeps::nothing},
      {"wordpiece", "wordpiece.json", parse, Keeps::nothing},
      {"wordpiece_special", "wordpiece.json", special, Keeps::nothing},
      {"sp_unigram", "sp_unigram.json", plain, Keeps::nothing},
      {"sp_unigram_bytes", "sp_unigram_bytes.json", plain, Keeps::nothing},
      {"sp_bpe", "sp_bpe.json", plain, Keeps::nothing},
      {"sp_bpe_suffix", "sp_bpe_suffix.json", plain, Keeps::nothing},
  };
}

}  // namespace weft
