// Meeting: the front's addresses and a secret go through the job's communicator; then TCP, with a proof from both
// ends.
#include "weft/serve/remote/meeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "weft/base/checksum.h"
#include "weft/base/error.h"
#include "weft/serve/remote/address.h"

namespace weft::remote {
namespace {

using namespace std::chrono_literals;
using MeetingClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatienceToMeet{60};
constexpr std::chrono::seconds kAnswerTime{5};  // what one connection may take to be made, and to prove itself
constexpr size_t kMostAddresses = 16;

using Random = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

struct Invitation {
  uint32_t port = 0, num_addresses = 0;
  std::array<Address, kMostAddresses> addresses{};
  Random secret{};
};
static_assert(sizeof(Invitation) % sizeof(int32_t) == 0);

// What comes first from who connects.
struct Greeting {
  std::array<char, 8> magic{'w', 'e', 'f', 't', 'r', 'e', 'p', '1'};
  uint32_t replica = 0;
  Random random{};
};
struct Reply {
  Random random{};
  Proof proof{};
};

Random random_bytes() {
  Random bytes;
  if (RAND_bytes(bytes.data(), int(bytes.size())) != 1) throw Error("there are no random numbers for a secret");
  return bytes;
}

// That `who` knows the secret, for this connection.
Proof proof_of(const Random& secret, char who, const Greeting& greeting, const Random& reply) {
  std::array<unsigned char, 1 + sizeof(Greeting) + sizeof(Random)> text{};
  text[0] = uint8_t(who);
  std::memcpy(&text[1], &greeting, sizeof greeting);
  std::memcpy(&text[1 + sizeof greeting], reply.data(), reply.size());
  Proof proof{};
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), int(secret.size()), text.data(), text.size(), proof.data(), &size);
  return proof;
}
constexpr char kFront = 'F', kReplica = 'R';

bool is_same_proof(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

template <class T>
bool send_all(const Socket& socket, const T& x) {
  return ::send(socket.fd(), &x, sizeof x, MSG_NOSIGNAL) == ssize_t(sizeof x);  // fits an empty buffer
}
template <class T>
bool receive_all(const Socket& socket, T& x) {
  return ::recv(socket.fd(), &x, sizeof x, MSG_WAITALL) == ssize_t(sizeof x);
}

bool is_one_machine(Communicator& job, Allocator& memory) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const Digest digest = digest_of(bytes_of(std::string_view(name.data())));
  const Tensor own = memory.empty(DType::i64, {1}), all = memory.empty(DType::i64, {job.size()});
  std::memcpy(own.raw(), digest.value.data(), sizeof(int64_t));
  job.all_gather(all, own);
  const std::span<const int64_t> names(all.data<int64_t>(), size_t(job.size()));
  return std::ranges::all_of(names, [&](int64_t one) { return one == names.front(); });
}

Socket listen_for_replicas(bool is_local, int count, Invitation& invitation) {
  const std::vector<Address> addresses = is_local ? std::vector{Address::loopback()} : own_addresses(kMostAddresses);
  invitation.num_addresses = uint32_t(addresses.size());
  std::ranges::copy(addresses, invitation.addresses.begin());
  invitation.secret = random_bytes();
  return is_local ? listen_at(addresses[0], count, invitation.port) : listen_everywhere(count, invitation.port);
}

Invitation share(Communicator& job, int front, const Invitation& invitation, Allocator& memory) {
  const Tensor words = memory.empty(DType::i32, {int64_t(sizeof(Invitation) / sizeof(int32_t))});
  std::memcpy(words.raw(), &invitation, sizeof invitation);
  job.broadcast(words, front);
  Invitation shared;
  std::memcpy(&shared, words.raw(), sizeof shared);
  return shared;
}

// A replica that has proven itself, or nothing: a stranger.
int admit(const Socket& socket, const Random& secret) {
  limit_waits(socket, kAnswerTime);
  Greeting greeting;
  const std::array<char, 8> magic = greeting.magic;
  if (!receive_all(socket, greeting) || greeting.magic != magic) return -1;
  Reply reply{.random = random_bytes()};
  reply.proof = proof_of(secret, kFront, greeting, reply.random);
  Proof proof{};
  if (!send_all(socket, reply) || !receive_all(socket, proof)) return -1;
  if (!is_same_proof(proof, proof_of(secret, kReplica, greeting, reply.random))) return -1;
  limit_waits(socket, 0s);
  return int(std::min<uint32_t>(greeting.replica, INT32_MAX));
}

std::vector<Socket> await_replicas(const Socket& listener, const Random& secret, int replicas) {
  std::vector<Socket> sockets(size_t(replicas) - 1);
  const auto is_missing = [](const Socket& one) { return one.fd() < 0; };
  const auto deadline = MeetingClock::now() + kPatienceToMeet;
  while (std::ranges::any_of(sockets, is_missing)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MeetingClock::now()).count();
    pollfd ready{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, int(left)) == 0)
      throw Error("replica {} did not come within {} s",
                  std::ranges::find_if(sockets, is_missing) - sockets.begin() + 1, kPatienceToMeet.count());
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.fd() < 0) continue;
    const int replica = admit(socket, secret);
    if (replica < 1 || replica >= replicas || !is_missing(sockets[size_t(replica) - 1])) continue;
    sockets[size_t(replica) - 1] = std::move(socket);
  }
  return sockets;
}

// To one that has proven to be the front. Throws Error with what is wrong.
Socket connect_to_front(const Invitation& invitation, const Address& at, int replica) {
  Socket socket = connect_to(at, invitation.port, kAnswerTime);
  Greeting greeting;
  greeting.replica = uint32_t(replica), greeting.random = random_bytes();
  Reply reply;
  if (!send_all(socket, greeting) || !receive_all(socket, reply)) throw Error("no answer");
  if (!is_same_proof(reply.proof, proof_of(invitation.secret, kFront, greeting, reply.random)))
    throw Error("another program listens there");
  if (!send_all(socket, proof_of(invitation.secret, kReplica, greeting, reply.random))) throw Error("no answer");
  limit_waits(socket, 0s);
  return socket;
}

Socket find_front(const Invitation& invitation, int replica) {
  std::string tried;
  for (uint32_t i = 0; i < std::min<uint32_t>(invitation.num_addresses, kMostAddresses); ++i) {
    const Address& at = invitation.addresses[i];
    try {
      return connect_to_front(invitation, at, replica);
    } catch (const Error& e) {
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", at.with(invitation.port), e.what());
    }
  }
  throw Error("replica {} cannot reach the one that listens ({}): open the ports between the machines", replica,
              tried);
}

}  // namespace

std::vector<Socket> meet(Communicator& job, const ReplicaPlace& place) {
  Allocator memory;
  const bool is_local = is_one_machine(job, memory);
  const bool is_front = job.rank() == place.front;
  Invitation own;
  Socket listener;
  if (is_front) listener = listen_for_replicas(is_local, place.replicas, own);
  const Invitation invitation = share(job, place.front, own, memory);
  std::vector<Socket> sockets;
  if (is_front) return await_replicas(listener, invitation.secret, place.replicas);
  if (place.is_driver) sockets.push_back(find_front(invitation, place.replica));
  return sockets;
}

}  // namespace weft::remote
