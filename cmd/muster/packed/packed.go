// Package packed makes a program small, for another one to carry, and makes the program again.
//
// gzip finds what is there twice. A call of one function is there often, but never twice alike: the instruction holds the distance to the function,
// which is another one from everywhere; and so it is with data. So distances are turned into places first (as LZX and 7-Zip's BCJ do), which are
// alike. That takes half a megabyte off.
package packed

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxProgram bounds what a program takes in memory.
const maxProgram = 256 << 20

// Program makes the program again that was turned, and packed by gzip.
func Program(packed string) ([]byte, error) {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil, err
	}
	end := packed[len(packed)-min(len(packed), 4):]
	size := binary.LittleEndian.Uint32([]byte(end + "\x00\x00\x00\x00")) // RFC 1952, 2.3.1: the last four bytes
	if size > maxProgram {
		return nil, fmt.Errorf("a program of %d bytes", size)
	}
	program := make([]byte, size)
	if _, err := io.ReadFull(r, program); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF { // which has looked at the sum, too
		return nil, fmt.Errorf("what is packed does not end after %d bytes: %w", size, cmp.Or(err, io.ErrShortBuffer))
	}
	code, far, err := calls(program)
	if err != nil {
		return nil, err
	}
	far(code, false)
	return program, nil
}

// Turn prepares a program for gzip, which is to be gzip's own: what Go has makes it larger by a fiftieth.
func Turn(program []byte) ([]byte, error) {
	program = bytes.Clone(program)
	code, far, err := calls(program)
	if err != nil {
		return nil, err
	}
	far(code, true)
	return program, nil
}

// What is read of an ELF file (elf(5)), of 64 bits and with the least byte first.
const (
	machineAt, headersAt, headersEach, headersNumber = 18, 32, 54, 56
	elfHeader, programHeader                         = 64, 56
	loaded, executable                               = 1, 1
	amd64, arm64                                     = 62, 183
)

// firstPage stays as it is: the headers may be in it.
const firstPage = 4 << 10

// calls finds a program's code, and how its calls are turned: distances into places, or back.
func calls(program []byte) (code []byte, turn func([]byte, bool), err error) {
	le := binary.LittleEndian
	if len(program) < firstPage || !bytes.HasPrefix(program, []byte("\x7fELF\x02\x01")) {
		return nil, nil, errors.New("it is no program for 64 bits")
	}
	switch machine := le.Uint16(program[machineAt:]); machine {
	case amd64:
		turn = callsAMD64
	case arm64:
		turn = callsARM64
	default:
		return nil, nil, fmt.Errorf("a program for machine %d", machine)
	}
	at, each := le.Uint64(program[headersAt:]), uint64(le.Uint16(program[headersEach:]))
	for i := range uint64(le.Uint16(program[headersNumber:])) {
		h := at + i*each
		if h < elfHeader || h > firstPage-programHeader {
			break
		}
		kind, flags := le.Uint32(program[h:]), le.Uint32(program[h+4:])
		from, size := le.Uint64(program[h+8:]), le.Uint64(program[h+32:])
		if kind != loaded || flags&executable == 0 {
			continue
		}
		if from > uint64(len(program)) || size > uint64(len(program))-from || from+size < firstPage {
			break
		}
		return program[max(from, firstPage) : from+size], turn, nil
	}
	return nil, nil, errors.New("its code is not found")
}

// callsAMD64 turns the 32 bits behind each CALL and JMP, and those of an instruction that loads, stores or compares what lies at a distance, or takes its
// address. Whether that is one or a part of something else does not matter: there is a way back from whatever bytes. Places have their most
// significant byte first, for that is what neighbours share.
func callsAMD64(code []byte, into bool) {
	for i := 0; i+7 <= len(code); i++ {
		switch {
		case code[i]&0xfe == 0xe8:
			turnCall(code[i+1:i+5], int32(i), int32(len(code)), into)
			i += 4
		case (code[i] == 0x48 || code[i] == 0x4c) && refers(code[i+1]) && code[i+2]&0xc7 == 5:
			turnReference(code[i+3:i+7], uint32(i), into)
			i += 6
		case code[i] == 0x83 && code[i+1] == 0x3d: // CMPL $0, of which Go has one for each pointer that it writes
			turnReference(code[i+2:i+6], uint32(i), into)
			i += 5
		}
	}
}

// refers reports whether an instruction of 64 bits is LEA, MOV or CMP.
func refers(opcode byte) bool {
	switch opcode {
	case 0x8d, 0x8b, 0x89, 0x3b, 0x39:
		return true
	}
	return false
}

// turnCall turns distances to places in the code alone, of n bytes: what else looks like a call is most often none.
func turnCall(field []byte, here, n int32, into bool) {
	if into {
		v := int32(binary.LittleEndian.Uint32(field))
		switch {
		case v >= -here && v < n-here:
			v += here
		case v >= n-here && v < n:
			v -= n
		}
		binary.BigEndian.PutUint32(field, uint32(v))
		return
	}
	v := int32(binary.BigEndian.Uint32(field))
	switch {
	case v >= 0 && v < n:
		v -= here
	case v >= -here && v < 0:
		v += n
	}
	binary.LittleEndian.PutUint32(field, uint32(v))
}

func turnReference(field []byte, here uint32, into bool) {
	if into {
		binary.BigEndian.PutUint32(field, binary.LittleEndian.Uint32(field)+here)
		return
	}
	binary.LittleEndian.PutUint32(field, binary.BigEndian.Uint32(field)-here)
}

// callsARM64 turns the 26 bits of each BL, which count instructions.
func callsARM64(code []byte, into bool) {
	const bits = 1<<26 - 1
	for i := 0; i+4 <= len(code); i += 4 {
		word := binary.LittleEndian.Uint32(code[i:])
		if word>>26 != 0x25 {
			continue
		}
		here := uint32(i / 4)
		if !into {
			here = -here
		}
		binary.LittleEndian.PutUint32(code[i:], word&^bits|(word+here)&bits)
	}
}
