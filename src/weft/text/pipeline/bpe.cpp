// Bpe: a piece as characters, then merged.
#include "weft/text/pipeline/bpe.h"

#include "weft/text/utf8.h"

namespace weft {

Bpe::Bpe(Vocabulary vocabulary, const std::vector<MergeIds>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), merges_(merges.size()), options_(std::move(options)) {
  for (size_t rank = 0; rank < merges.size(); ++rank)
    merges_.add(merges[rank].left, merges[rank].right, {uint32_t(rank), merges[rank].merged});
  if (options_.byte_fallback) bytes_ = ByteTokens(vocabulary_);
}

int32_t Bpe::find_character(std::string_view character, bool is_first, bool is_last) const {
  const bool has_prefix = !is_first && !options_.continuing_subword_prefix.empty();
  const bool has_suffix = is_last && !options_.end_of_word_suffix.empty();
  if (!has_prefix && !has_suffix) return vocabulary_.find(character);
  std::string whole;
  if (has_prefix) whole += options_.continuing_subword_prefix;
  whole += character;
  if (has_suffix) whole += options_.end_of_word_suffix;
  return vocabulary_.find(whole);
}

std::vector<Symbol> Bpe::symbols_of(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  std::optional<Symbol> unknown;  // not yet put: it may be fused with the next
  const auto flush = [&] {
    if (unknown) symbols.push_back(*unknown);
    unknown.reset();
  };
  std::vector<int32_t> fallback;
  for (size_t at = 0; at < piece.size();) {
    const size_t length = first_code_point(piece.substr(at)).length;
    const std::string_view character = piece.substr(at, length);
    const Symbol symbol{uint32_t(at), uint32_t(length),
                        find_character(character, at == 0, at + length == piece.size())};
    at += length;
    fallback.clear();
    if (symbol.id >= 0) {
      flush();
      symbols.push_back(symbol);
    } else if (options_.byte_fallback && bytes_.append(character, fallback)) {
      for (size_t i = 0; i < fallback.size(); ++i) symbols.push_back({symbol.begin + uint32_t(i), 1, fallback[i]});
    } else if (options_.unknown) {
      if (unknown && options_.fuse_unknown) {
        unknown->length += symbol.length;
      } else {
        flush();
        unknown = Symbol{symbol.begin, symbol.length, *options_.unknown};
      }
    }
  }
  flush();
  return symbols;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const int32_t whole = vocabulary_.find(piece); whole >= 0) {
      ids.push_back(whole);
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(piece);
  link_symbols(symbols);
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (const Symbol& symbol : symbols) {
    if (symbol.length > 0) ids.push_back(symbol.id);
  }
}

}  // namespace weft
