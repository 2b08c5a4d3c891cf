// TensorBoardWriter: the file reads back by the rules of TFRecord and protocol buffers, checksums included.
#include "weft/train/tensorboard.h"

#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <map>

#include "data/temp_folder.h"

namespace weft {
namespace {

// One field of a message: a number (varint), bits (fixed width) or bytes.
struct Field {
  int wire_type = 0;
  uint64_t number = 0;
  std::string bytes;
  double as_double() const {
    double value;
    std::memcpy(&value, bytes.data(), 8);
    return value;
  }
  float as_float() const {
    float value;
    std::memcpy(&value, bytes.data(), 4);
    return value;
  }
};
using Message = std::multimap<int, Field>;

uint64_t read_varint(std::string_view& text) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = uint8_t(text.at(0));
    text.remove_prefix(1);
    value |= uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

Message parse_message(std::string_view text) {
  Message message;
  while (!text.empty()) {
    const uint64_t tag = read_varint(text);
    Field field{.wire_type = int(tag & 7)};
    if (field.wire_type == 0) {
      field.number = read_varint(text);
    } else {
      const size_t size = field.wire_type == 1 ? 8 : field.wire_type == 5 ? 4 : size_t(read_varint(text));
      EXPECT_LE(size, text.size());
      field.bytes = text.substr(0, size);
      text.remove_prefix(size);
    }
    message.emplace(int(tag >> 3), field);
  }
  return message;
}

uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return rotated >> 17 | rotated << 15;
}

std::vector<Message> read_events(const std::string& path) {
  const std::string file = slurp(path);
  const Bytes bytes = bytes_of(file);
  std::vector<Message> events;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t length = size_t(load_le<uint64_t>(&bytes[at]));
    EXPECT_EQ(unmasked(load_le<uint32_t>(&bytes[at + 8])), crc32c(bytes.subspan(at, 8)));
    EXPECT_EQ(unmasked(load_le<uint32_t>(&bytes[at + 12 + length])), crc32c(bytes.subspan(at + 12, length)));
    events.push_back(parse_message(text_of(bytes.subspan(at + 12, length))));
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return events;
}

const Field& only(const Message& message, int field) {
  EXPECT_EQ(message.count(field), 1u);
  return message.find(field)->second;
}

// Check values: RFC 3720, appendix B.4, and the catalogue of parametrised CRC algorithms.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of("")), 0u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43u);
}

TEST(TensorBoardWriter, WritesWhatTensorBoardReads) {
  const TempFolder folder;
  TensorBoardWriter writer(FileSystem::real(), folder.path(), 7);
  const std::string name = file_name_of(writer.path());
  EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0u) << name;
  writer.write(7, std::vector<Scalar>{{"train/loss", 3.5f}, {"train/lr", 1e-3f}});
  writer.write(int64_t(1) << 40, std::vector<Scalar>{{"eval/loss", std::nanf("")}});
  const std::vector<Message> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(only(events[0], 3).bytes, "brain.Event:2");
  EXPECT_GT(only(events[0], 1).as_double(), 1.6e9);  // seconds since 1970
  EXPECT_EQ(only(events[1], 2).number, 7u);
  EXPECT_EQ(only(parse_message(only(events[1], 7).bytes), 1).number, 1u);  // session_log.status = START
  EXPECT_EQ(only(events[2], 2).number, 7u);
  std::map<std::string, float> values;
  const Message summary = parse_message(only(events[2], 5).bytes);
  for (const auto& [field, value] : summary) {
    EXPECT_EQ(field, 1);
    const Message scalar = parse_message(value.bytes);
    values[only(scalar, 1).bytes] = only(scalar, 2).as_float();
  }
  EXPECT_EQ(values, (std::map<std::string, float>{{"train/loss", 3.5f}, {"train/lr", 1e-3f}}));
  EXPECT_EQ(only(events[3], 2).number, uint64_t(1) << 40);
  const Message last = parse_message(only(parse_message(only(events[3], 5).bytes), 1).bytes);
  EXPECT_TRUE(std::isnan(only(last, 2).as_float()));
}

TEST(TensorBoardWriter, StartsANewFileEachTime) {
  const TempFolder folder;
  const TensorBoardWriter a(FileSystem::real(), folder.path(), 0), b(FileSystem::real(), folder.path(), 0);
  EXPECT_NE(a.path(), b.path());
}

TEST(TensorBoardWriter, NamesAMissingFolder) {
  const TempFolder folder;
  EXPECT_THROW(TensorBoardWriter(FileSystem::real(), folder.path("missing"), 0), Error);
}

}  // namespace
}  // namespace weft
