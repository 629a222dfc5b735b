// A worker in a process of its own, for peer_loss_test.cc to kill and to stop.
//
//   handoff_peer decode TRANSPORT PREFILL_INCARNATION   expects hand-offs; prints "ADDRESS INCARNATION"
//   handoff_peer prefill TRANSPORT ADDRESS INCARNATION OWN_INCARNATION   hands over, but never seals; prints "begun"
//
// Ends when its input ends, which it does at the latest with the test's process.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/escaping.h"
#include "tests/kvstore/transfer/peer_loss.h"

namespace baton::kvstore {
namespace {

void AwaitEndOfInput() {
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

base::Id128 IdOf(const std::string& hex) {
  return *base::Id128::FromBytes(absl::HexStringToBytes(hex));
}

void Decode(TransportKind transport, const base::Id128& prefill) {
  LinkReceiverOptions options;
  options.transports = {transport};
  DecodeSide decode(kPeerBlocks, options, nullptr, kPeerLayout);
  for (uint32_t i = 0; i < kPeerHandoffs; ++i) {
    decode.Expect(MakeKey(i), prefill, PeerTokens(i), kPeerHandoffBlocks);
  }
  std::cout << decode.server->address() << ' ' << decode.parts.incarnation << std::endl;
  AwaitEndOfInput();
}

void Prefill(TransportKind transport, const HandoffPeer& peer, const base::Id128& own) {
  LinkSenderOptions options;
  options.transports = {transport};
  PrefillSide prefill(kPeerBlocks, options, nullptr, kPeerLayout, own);
  std::vector<KvBlockId> blocks = BeginAll(prefill, peer);
  std::cout << "begun" << std::endl;
  AwaitEndOfInput();
  prefill.sender.reset();
  prefill.parts.pool.Release(blocks);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[1] == "decode") {
    Decode(*ParseTransportKind(arguments[2]), IdOf(arguments[3]));
    return 0;
  }
  if (arguments.size() == 6 && arguments[1] == "prefill") {
    Prefill(*ParseTransportKind(arguments[2]), {arguments[3], IdOf(arguments[4])},
            IdOf(arguments[5]));
    return 0;
  }
  std::cerr << "usage: see the head of handoff_peer_main.cc\n";
  return 2;
}

}  // namespace
}  // namespace baton::kvstore

int main(int argc, char** argv) {
  return baton::kvstore::Main(std::vector<std::string>(argv, argv + argc));
}
