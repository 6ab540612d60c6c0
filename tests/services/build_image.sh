#!/usr/bin/env bash
# Builds the Dockerfile for real, without a daemon and without an image hub, and runs what came out.
#
#   tests/services/build_image.sh [FOLDER]      FOLDER keeps the stand-in for the base image between runs
#
# A debootstrapped Debian with the same Python stands in for the base image. The image is then run read-only, as its
# user, without capabilities: packhouse must make a token, refuse to serve without one, serve, and pass its own health
# check. Needs root, and: apt-get install -y --no-install-recommends buildah crun debootstrap curl jq
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ $# -gt 0 ]; then
  mkdir -p "$1"
  work=$(realpath "$1")
  clean() { :; }
else
  work=$(mktemp -d)
  clean() { rm -rf "$work"; }
fi
trap clean EXIT
suite=trixie
standin=localhost/packhouse-base image=localhost/packhouse-test
tools=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
isolation=(--isolation chroot)

say() { printf '\n== %s\n' "$*"; }

say "the stand-in for the base image: Debian $suite"
if ! "${tools[@]}" inspect --type image "$standin" >/dev/null 2>&1; then
  if [ ! -e "$work/rootfs/usr/bin/python3" ]; then
    mirror=$({ cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true; } |
      sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\(http[^ ]*\) .*/\2/p' | head -n 1)
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip \
      "$suite" "$work/rootfs" "$mirror" >"$work/debootstrap.log" || { tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
    # The official image has python and pip of its own, which Debian does not guard.
    ln -sf python3 "$work/rootfs/usr/bin/python"
    rm -f "$work"/rootfs/usr/lib/python3*/EXTERNALLY-MANAGED
  fi
  container=$("${tools[@]}" from scratch)
  "${tools[@]}" add --quiet "$container" "$work/rootfs" / >/dev/null
  "${tools[@]}" config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  "${tools[@]}" commit --quiet "$container" "$standin" >/dev/null
  "${tools[@]}" rm "$container" >/dev/null
fi

say "the build"
# So that pip reaches the index through what this machine is set up with.
reach=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
[ -f /etc/pip.conf ] && reach+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
"${tools[@]}" build --pull-never "${isolation[@]}" --format docker "${reach[@]}" --build-arg "BASE=$standin" \
  --tag "$image" --file Dockerfile .

config=$("${tools[@]}" inspect --type image "$image" | jq -c .Docker.config)
jq '{User, Entrypoint, Cmd, ExposedPorts, Volumes, Healthcheck}' <<<"$config"
user=$(jq -r .User <<<"$config")
[ "$user" = 10001:10001 ]

say "the container"
container=$("${tools[@]}" from --pull-never "$image")
root=$("${tools[@]}" mount "$container")
size=$(du -sm "$root/opt/packhouse" | cut -f1)
echo "/opt/packhouse has $size MB"
[ ! -e "$root/opt/packhouse/bin/pip" ]
[ ! -e "$root/build" ]

# What an engine does with --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges and the volumes.
bundle=$work/bundle
rm -rf "$bundle"
mkdir -p "$bundle/data" "$bundle/cache" "$bundle/secrets"
chown -R 10001:10001 "$bundle/data" "$bundle/cache"
mkdir -p "$root/run/secrets"
mapfile -t variables < <(jq -r '.Env[]' <<<"$config")
run() { # run ARGUMENTS...: they as a command in the container; `port` and `tokens` are settings
  # shellcheck disable=SC2016 # expanded inside
  env -i "${variables[@]}" "PACKHOUSE_PORT=${port:-8750}" ${tokens:+PACKHOUSE_TOKENS_FILE=/run/secrets/tokens.json} \
    unshare --mount --pid --ipc --uts --fork --kill-child bash -euc '
      root=$1 bundle=$2; shift 2
      mount --bind "$root" "$root"
      mount --bind "$bundle/data" "$root/var/lib/packhouse"
      mount --bind "$bundle/cache" "$root/var/cache/packhouse"
      mount --bind -o ro "$bundle/secrets" "$root/run/secrets"
      mount -t tmpfs -o nosuid,nodev tmpfs "$root/tmp"
      mount -t proc proc "$root/proc"
      mount -t tmpfs -o nosuid tmpfs "$root/dev"
      for device in null zero random urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
      mkdir -m 1777 "$root/dev/shm"
      mount -o remount,bind,ro "$root"
      exec chroot "$root" /usr/bin/setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs \
        --bounding-set=-all --inh-caps=-all -- env -C /var/lib/packhouse "$@"
    ' container "$root" "$bundle" "$@"
}
mapfile -t entry < <(jq -r '.Entrypoint[]' <<<"$config")
mapfile -t command < <(jq -r '.Cmd[]' <<<"$config")
mapfile -t health < <(jq -r '.Healthcheck.Test[1:][]' <<<"$config")

run "${entry[@]}" version
seen=$(run python -c 'import os; print(os.getuid(), os.getgid(), os.getgroups()); open("/opt/x", "w")' 2>&1 || true)
if ! grep -q "^10001 10001 \[\]" <<<"$seen" || ! grep -q "Read-only file system" <<<"$seen"; then
  echo "$seen" >&2
  exit 1
fi
echo "the root file system is read-only"

if refused=$(run "${entry[@]}" "${command[@]}" 2>&1); then echo "it served without tokens" >&2; exit 1; fi
grep -q PACKHOUSE_TOKENS_FILE <<<"$refused"
echo "without tokens: $refused"

mapfile -t made < <(run "${entry[@]}" token test --repos '*/*' --verbs admin)
echo "[${made[1]}]" >"$bundle/secrets/tokens.json"

git init --quiet --bare --initial-branch main "$bundle/data/example.git"
git -C "$bundle/data/example.git" update-ref refs/heads/main "$(
  cd "$bundle/data/example.git"
  blob=$(echo "a line to find" | git hash-object -w --stdin)
  tree=$(printf '100644 blob %s\tREADME\n' "$blob" | git mktree)
  git -c user.name=a -c user.email=a@example.org commit-tree -m first "$tree"
)"
chown -R 10001:10001 "$bundle/data"
run "${entry[@]}" ingest /var/lib/packhouse/example.git team/example

port=$((20000 + RANDOM % 20000)) tokens=yes
run "${entry[@]}" "${command[@]}" >"$bundle/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; "${tools[@]}" rm "$container" >/dev/null; clean' EXIT
for _ in $(seq 100); do
  curl -fsS "http://127.0.0.1:$port/livez" >/dev/null 2>&1 && break
  kill -0 "$server" 2>/dev/null || { cat "$bundle/log" >&2; exit 1; }
  sleep 0.2
done
echo "livez: $(curl -fsS "http://127.0.0.1:$port/livez")"
echo "readyz: $(curl -fsS "http://127.0.0.1:$port/readyz")"
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/repos")" = 401 ]
ask() { curl -fsS -H "Authorization: Bearer ${made[0]}" "http://127.0.0.1:$port/v1/repos/team/example$1"; }
ask '/raw?path=README'
ask '/grep?pattern=find&fixed=true' | jq -e '.matches[0].line == 1 and .complete' >/dev/null
echo "it reads, on its loop and in its workers"
run "${health[@]}"
echo "the image's health check passes"
if (port=1 && run "${health[@]}") 2>/dev/null; then echo "the health check passes where nothing listens" >&2; exit 1; fi

process=$server
while child=$(pgrep -P "$process" | head -n 1) && [ -n "$child" ] && [ "$(cat "/proc/$process/comm")" != packhouse ]; do
  process=$child
done
kill -TERM "$process"
wait "$server" && code=0 || code=$?
cat "$bundle/log"
echo "told to end, it ended with code $code"
[ "$code" = 0 ] || [ "$code" = 143 ]

say "good"
