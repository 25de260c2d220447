// Messages for people. Inside slimps a key is called by its typed name (key.h), which is unambiguous in logs; whoever
// named it "w" or 5 knows it as that.
//
//   WithPlainKeys("push of key s:w: element 0 is nan")   // "push of key w: element 0 is nan"
#ifndef SLIMPS_PROTO_BASE_PLAIN_KEYS_H_
#define SLIMPS_PROTO_BASE_PLAIN_KEYS_H_

#include <string>
#include <string_view>

namespace slimps {

// Takes the type off every typed name that the words "key" or "tensor" introduce. Pure.
std::string WithPlainKeys(std::string_view message);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PLAIN_KEYS_H_
