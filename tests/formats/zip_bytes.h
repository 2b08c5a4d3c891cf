// ZipBytes: zip archives put together entry by entry, so that tests can make each field of them wrong.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/bytes.h"

namespace weft {

class ZipBytes {
 public:
  struct Change {  // of what the directory says of an entry
    uint16_t flags = 0, method = 0;
    int64_t more_size = 0, more_compressed = 0, more_offset = 0;
    bool zip64 = false;
  };

  void add(std::string_view name, std::string_view content) { add(name, content, Change()); }
  void add(std::string_view name, std::string_view content, Change change) {
    const uint64_t offset = bytes_.size() + uint64_t(change.more_offset);
    number(bytes_, uint32_t(0x04034b50));
    bytes_ += std::string(22, '\0');
    number(bytes_, uint16_t(name.size()));
    number(bytes_, uint16_t(0));
    bytes_.append(name).append(content);
    const uint64_t size = content.size() + uint64_t(change.more_size);
    const uint64_t compressed = content.size() + uint64_t(change.more_compressed);
    number(directory_, uint32_t(0x02014b50));
    number(directory_, uint32_t(0));
    number(directory_, change.flags);
    number(directory_, change.method);
    directory_ += std::string(8, '\0');
    number(directory_, change.zip64 ? UINT32_MAX : uint32_t(compressed));
    number(directory_, change.zip64 ? UINT32_MAX : uint32_t(size));
    number(directory_, uint16_t(name.size()));
    number(directory_, uint16_t(change.zip64 ? 28 : 0));
    directory_ += std::string(10, '\0');
    number(directory_, change.zip64 ? UINT32_MAX : uint32_t(offset));
    directory_.append(name);
    if (change.zip64) {
      number(directory_, uint16_t(1));
      number(directory_, uint16_t(24));
      for (const uint64_t value : {size, compressed, offset}) number(directory_, value);
    }
    ++num_entries_;
  }

  std::string bytes(std::string_view comment = "") const {
    std::string all = bytes_ + directory_;
    end_record(all, num_entries_, directory_.size(), bytes_.size());
    all.resize(all.size() - 2);
    number(all, uint16_t(comment.size()));
    return all.append(comment);
  }
  // With a zip64 end record of any content.
  std::string bytes64(uint64_t num_entries, uint64_t size, uint64_t offset, uint64_t end_at) const {
    std::string all = bytes_ + directory_;
    number(all, uint32_t(0x06064b50));
    number(all, uint64_t(44));
    all += std::string(12, '\0');
    for (const uint64_t value : {num_entries, num_entries, size, offset}) number(all, value);
    number(all, uint32_t(0x07064b50));
    number(all, uint32_t(0));
    number(all, end_at);
    number(all, uint32_t(1));
    end_record(all, 0xffff, 0xffffffff, 0xffffffff);
    return all;
  }
  std::string bytes64() const {
    return bytes64(num_entries_, directory_.size(), bytes_.size(), bytes_.size() + directory_.size());
  }

  template <class T>
  static void number(std::string& to, T value) {
    to += text_of(std::as_bytes(std::span(&value, 1)));
  }

 private:
  static void end_record(std::string& all, uint64_t num_entries, uint64_t size, uint64_t offset) {
    number(all, uint32_t(0x06054b50));
    number(all, uint32_t(0));
    number(all, uint16_t(num_entries));
    number(all, uint16_t(num_entries));
    number(all, uint32_t(size));
    number(all, uint32_t(offset));
    number(all, uint16_t(0));
  }

  std::string bytes_, directory_;
  uint64_t num_entries_ = 0;
};

}  // namespace weft
