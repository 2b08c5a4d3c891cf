// PreTokenizer: cuts a normalized text into pieces across which no token reaches.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/pipeline/pieces.h"
#include "weft/text/regex.h"

namespace weft {

// Where a longer text may be divided so that its parts, cut on their own, give the pieces of the whole: before a ' '
// that follows something other than white space, and behind a single '\n' between something other than white space
// and a letter or digit.
struct Divides {
  bool keeps = false;  // no piece depends on what lies across such a place, whether or not it is cut there
  bool before_space = false, behind_newline = false;  // it is always cut there
};

// Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
  virtual Divides divides() const { return {}; }
  virtual bool cuts_only_at_spaces() const { return false; }  // it leaves a text without ' ' whole
};

// What becomes of that which a pattern matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

enum class PrependScheme { always, first, never };

// By the names that tokenizer.json gives them.
std::unique_ptr<PreTokenizer> split_pre_tokenizer(Regex pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::string pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex);
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(std::string replacement, PrependScheme scheme, bool split);
std::unique_ptr<PreTokenizer> whitespace_pre_tokenizer();        // words, and runs of what is neither word nor space
std::unique_ptr<PreTokenizer> whitespace_split_pre_tokenizer();  // what lies between white space
std::unique_ptr<PreTokenizer> bert_pre_tokenizer();
std::unique_ptr<PreTokenizer> digits_pre_tokenizer(bool individual);
std::unique_ptr<PreTokenizer> punctuation_pre_tokenizer(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> delimiter_pre_tokenizer(char32_t delimiter);
std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts);

// Cuts before every run of `space`: for models that know no token with it behind something else, which would give the
// same tokens without, only slower.
std::unique_ptr<PreTokenizer> word_start_pre_tokenizer(std::string space);

}  // namespace weft
