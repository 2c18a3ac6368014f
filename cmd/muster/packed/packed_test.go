package packed

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// A program is what it was, to the last byte, and smaller than gzip alone makes it.
func TestProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := Turn(program)
	if err != nil {
		t.Fatal(err)
	}
	small, plain := zipped(turned), zipped(program)
	again, err := Program(string(small))
	if err != nil || !bytes.Equal(again, program) {
		t.Fatalf("%d bytes of %d, %v", len(again), len(program), err)
	}
	if len(small) >= len(plain) {
		t.Errorf("%d bytes, and %d by gzip alone", len(small), len(plain))
	}
}

func zipped(data []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// Whatever the bytes, there is a way back: code holds tables, too.
func TestCallsTurnBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		code := make([]byte, random.IntN(200))
		for i := range code {
			code[i] = byte(random.IntN(256))
			if random.IntN(3) == 0 {
				code[i] = []byte{0xe8, 0xe9, 0, 0xff, 0x97, 0x48, 0x4c, 0x8d, 0x83, 0x3d, 5}[random.IntN(11)]
			}
		}
		for name, turn := range map[string]func([]byte, bool){"amd64": callsAMD64, "arm64": callsARM64} {
			again := bytes.Clone(code)
			turn(again, true)
			if turn(again, false); !bytes.Equal(again, code) {
				t.Fatalf("%s: % x became % x", name, code, again)
			}
		}
	}
}

// Two calls of one function are alike when they are turned.
func TestCallsAreAlike(t *testing.T) {
	code := make([]byte, 64)
	for _, at := range []int{10, 40} {
		code[at] = 0xe8
		binary.LittleEndian.PutUint32(code[at+1:], uint32(int32(20-at)))
	}
	callsAMD64(code, true)
	if !bytes.Equal(code[10:15], code[40:45]) {
		t.Errorf("% x and % x", code[10:15], code[40:45])
	}
	copy(code[10:], []byte{0x48, 0x8d, 0x05, 90, 0, 0, 0})
	copy(code[40:], []byte{0x48, 0x8d, 0x05, 60, 0, 0, 0})
	callsAMD64(code, true)
	if !bytes.Equal(code[10:17], code[40:47]) {
		t.Errorf("% x and % x", code[10:17], code[40:47])
	}
	copy(code[10:], []byte{0x83, 0x3d, 90, 0, 0, 0, 0})
	copy(code[40:], []byte{0x83, 0x3d, 60, 0, 0, 0, 0})
	callsAMD64(code, true)
	if !bytes.Equal(code[10:17], code[40:47]) {
		t.Errorf("% x and % x", code[10:17], code[40:47])
	}
	words := make([]byte, 64)
	for _, at := range []uint32{2, 9} {
		binary.LittleEndian.PutUint32(words[4*at:], 0x25<<26|(5-at)&(1<<26-1))
	}
	callsARM64(words, true)
	if !bytes.Equal(words[8:12], words[36:40]) {
		t.Errorf("% x and % x", words[8:12], words[36:40])
	}
}

func TestNoProgram(t *testing.T) {
	elf := make([]byte, 2*firstPage)
	copy(elf, "\x7fELF\x02\x01")
	binary.LittleEndian.PutUint16(elf[machineAt:], amd64)
	other := bytes.Clone(elf)
	binary.LittleEndian.PutUint16(other[machineAt:], 8)
	astray := bytes.Clone(elf)
	binary.LittleEndian.PutUint64(astray[headersAt:], 1<<63)
	binary.LittleEndian.PutUint16(astray[headersNumber:], 3)
	beyond := bytes.Clone(elf)
	binary.LittleEndian.PutUint64(beyond[headersAt:], elfHeader)
	binary.LittleEndian.PutUint16(beyond[headersEach:], programHeader)
	binary.LittleEndian.PutUint16(beyond[headersNumber:], 1)
	binary.LittleEndian.PutUint64(beyond[elfHeader:], 1|1<<32)
	binary.LittleEndian.PutUint64(beyond[elfHeader+32:], 1<<62)
	for name, c := range map[string]struct {
		program []byte
		want    string
	}{"text": {[]byte("#!/bin/sh"), "no program"}, "no code": {elf, "not found"}, "another machine": {other, "machine 8"}, "astray": {astray, "not found"}, "beyond": {beyond, "not found"}} {
		if _, err := Turn(c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(make([]byte, 9000))
	z.Close()
	whole := b.String()
	for name, text := range map[string]string{
		"nothing": "", "no gzip": "no gzip", "no program": whole, "cut": whole[:len(whole)-5], "another sum": whole[:len(whole)-5] + "x" + whole[len(whole)-4:],
		"longer": whole[:len(whole)-4] + "\x10\x27\x00\x00", "shorter": whole[:len(whole)-4] + "\x10\x00\x00\x00", "huge": whole[:len(whole)-4] + "\xff\xff\xff\xff",
	} {
		if _, err := Program(text); err == nil {
			t.Errorf("%s is unpacked", name)
		}
	}
}
