// TensorBoardWriter: events as protocol buffers, framed as TFRecords.
#include "weft/train/tensorboard.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace weft {
namespace {

using google::protobuf::internal::WireFormatLite;

// Field numbers of TensorFlow's event.proto and summary.proto.
struct EventField {
  static constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
};
constexpr int kSessionLogStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);  // the polynomial, reflected
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = crc_table();

// How TFRecord stores a checksum: rotated and moved, so that a checksum of checksums is no special case.
uint32_t masked_crc(Bytes bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

// Replaces `into` by the message that fill(CodedOutputStream&) writes.
template <class Fill>
void encode(std::string& into, Fill fill) {
  into.clear();
  google::protobuf::io::StringOutputStream text(&into);
  google::protobuf::io::CodedOutputStream out(&text);
  fill(out);
}

void write_head(int64_t step, google::protobuf::io::CodedOutputStream& out) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  WireFormatLite::WriteDouble(EventField::kWallTime, now.count(), &out);
  WireFormatLite::WriteInt64(EventField::kStep, step, &out);
}

std::string new_path(FileSystem& fs, const std::string& folder) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const std::string path =
      join_path(folder, fmt::format("events.out.tfevents.{}.{}.{}", seconds, host.data(), getpid()));
  std::string unused = path;
  for (int i = 1; exists(fs, unused); ++i) unused = fmt::format("{}.{}", path, i);
  return unused;
}

}  // namespace

uint32_t crc32c(Bytes bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ uint32_t(byte)) & 0xFF];
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(FileSystem& fs, const std::string& folder, int64_t first_step)
    : path_(new_path(fs, folder)), file_(std::make_unique<OutputFile>(fs, path_)) {
  encode(record_, [&](auto& out) {
    write_head(0, out);
    WireFormatLite::WriteString(EventField::kFileVersion, "brain.Event:2", &out);
  });
  write_record();
  encode(value_, [&](auto& out) { WireFormatLite::WriteEnum(kSessionLogStatus, kSessionStart, &out); });
  encode(record_, [&](auto& out) {
    write_head(first_step, out);
    WireFormatLite::WriteBytes(EventField::kSessionLog, value_, &out);
  });
  write_record();
}

void TensorBoardWriter::write(int64_t step, std::span<const Scalar> scalars) {
  encode(summary_, [&](auto& out) {
    for (const Scalar& scalar : scalars) {
      encode(value_, [&](auto& inner) {
        inner.WriteTag(WireFormatLite::MakeTag(kValueTag, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
        inner.WriteVarint32(uint32_t(scalar.tag.size()));
        inner.WriteRaw(scalar.tag.data(), int(scalar.tag.size()));
        WireFormatLite::WriteFloat(kValueSimple, scalar.value, &inner);
      });
      WireFormatLite::WriteBytes(kSummaryValue, value_, &out);
    }
  });
  encode(record_, [&](auto& out) {
    write_head(step, out);
    WireFormatLite::WriteBytes(EventField::kSummary, summary_, &out);
  });
  write_record();
}

// TFRecord: length u64, its checksum u32, the record, its checksum u32.
void TensorBoardWriter::write_record() {
  std::array<std::byte, 12> head;
  store_le<uint64_t>(head.data(), record_.size());
  store_le<uint32_t>(head.data() + 8, masked_crc(Bytes(head).first(8)));
  std::array<std::byte, 4> tail;
  store_le<uint32_t>(tail.data(), masked_crc(bytes_of(record_)));
  framed_.clear();
  framed_.append(text_of(head)).append(record_).append(text_of(tail));
  file_->write(bytes_of(framed_));
}

}  // namespace weft
