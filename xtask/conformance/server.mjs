// What the suite calls: its scenarios know these tools, resources and prompts by name.

import {
    acceptedContent,
    CLIENT_CAPABILITIES_META_KEY,
    createRequestStateCodec,
    fromJsonSchema,
    inputRequired,
    McpServer,
    ProtocolError,
    ProtocolErrorCode,
    ResourceTemplate
} from '@modelcontextprotocol/server';
import * as z from 'zod/v4';

const IMAGE =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const AUDIO = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

/** State that travels through clients is sealed: what they changed is refused. */
const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const text = text => ({ content: [{ type: 'text', text }] });
const form = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const question = (message, properties) => inputRequired.elicit({ message, requestedSchema: form(properties) });
const prompt = (text, maxTokens = 50) =>
    inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens });
const NAME = { name: { type: 'string' } };
const CONFIRM = { ok: { type: 'boolean' } };

/** Asks the client's user on the open stream of a call, as it was done until 2025-11-25. */
async function elicit(ctx, message, properties, required) {
    const params = { message, requestedSchema: form(properties, required) };
    const { action, content } = await ctx.mcpReq.send({ method: 'elicitation/create', params });
    return text(`answered: action=${action}, content=${JSON.stringify(content ?? {})}`);
}

/** The tools whose results are always the same. */
const CONSTANT = {
    test_simple_text: text('This is a simple text response for testing.'),
    test_image_content: { content: [{ type: 'image', data: IMAGE, mimeType: 'image/png' }] },
    test_audio_content: { content: [{ type: 'audio', data: AUDIO, mimeType: 'audio/wav' }] },
    test_embedded_resource: {
        content: [
            {
                type: 'resource',
                resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' }
            }
        ]
    },
    test_multiple_content_types: {
        content: [
            { type: 'text', text: 'Multiple content types test:' },
            { type: 'image', data: IMAGE, mimeType: 'image/png' },
            {
                type: 'resource',
                resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' }
            }
        ]
    },
    test_streaming_elicitation: text('nothing but this')
};

/** The tools that do something, by name: called with arguments, context, and what the way of serving brings. */
const ACTIVE = {
    async test_error_handling() {
        throw new Error('This tool intentionally returns an error for testing');
    },

    async test_tool_with_logging(_, ctx) {
        for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
            await ctx.mcpReq.notify({ method: 'notifications/message', params: { level: 'info', data } });
            await pause(50);
        }
        return text('Tool with logging executed successfully');
    },

    async test_logging_tool(_, ctx) {
        await ctx.mcpReq.log('info', 'only those hear this who asked for it');
        return text('logged');
    },

    async test_tool_with_progress(_, ctx) {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
            await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
            await pause(50);
        }
        return text(String(progressToken ?? 'no token'));
    },

    async test_reconnection(_, ctx, { closeStream }) {
        closeStream?.(ctx.mcpReq.id);
        await pause(100);
        return text('Reconnection test completed successfully');
    },

    async test_elicitation_sep1034_defaults(_, ctx) {
        const properties = {
            name: { type: 'string', description: 'User name', default: 'John Doe' },
            age: { type: 'integer', description: 'User age', default: 30 },
            score: { type: 'number', description: 'User score', default: 95.5 },
            status: { type: 'string', description: 'User status', enum: ['active', 'inactive', 'pending'], default: 'active' },
            verified: { type: 'boolean', description: 'Verification status', default: true }
        };
        return elicit(ctx, 'Please review and update the form fields with defaults', properties, []);
    },

    async test_elicitation_sep1330_enums(_, ctx) {
        const options = ['option1', 'option2', 'option3'];
        const titled = [1, 2, 3].map(number => ({ const: `value${number}`, title: `Choice ${number}` }));
        const several = { type: 'array', minItems: 1, maxItems: 3 };
        const properties = {
            untitledSingle: { type: 'string', enum: options },
            titledSingle: { type: 'string', oneOf: titled },
            legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
            untitledMulti: { ...several, items: { type: 'string', enum: options } },
            titledMulti: { ...several, items: { anyOf: titled } }
        };
        return elicit(ctx, 'Please select options from the enum fields', properties, []);
    },

    async test_trigger_tool_change(_, __, { changed }) {
        changes.tools += 1;
        changed?.('tools');
        return text('told');
    },

    async test_trigger_prompt_change(_, __, { changed }) {
        changes.prompts += 1;
        changed?.('prompts');
        return text('told');
    },

    // From here on: tools of 2026-07-28, which answer with what they need to know until the retry brings it.

    async test_missing_capability(_, ctx) {
        if (ctx.mcpReq.inputResponses?.answer !== undefined) return text('sampled');
        return inputRequired({ inputRequests: { answer: prompt('Reply with the single word: pong', 16) } });
    },

    async test_input_required_result_elicitation(_, ctx) {
        const name = acceptedContent(ctx.mcpReq.inputResponses, 'user_name')?.name;
        if (typeof name === 'string') return text(`Hello, ${name}!`);
        return inputRequired({ inputRequests: { user_name: question('What is your name?', NAME) } });
    },

    async test_input_required_result_sampling(_, ctx) {
        const answer = ctx.mcpReq.inputResponses?.capital_question;
        if (answer !== undefined) return text(`Sampling response: ${answer.content?.text ?? JSON.stringify(answer)}`);
        return inputRequired({ inputRequests: { capital_question: prompt('What is the capital of France?', 100) } });
    },

    async test_input_required_result_list_roots(_, ctx) {
        const roots = ctx.mcpReq.inputResponses?.client_roots?.roots;
        if (Array.isArray(roots)) return text(`${roots.length} roots: ${roots.map(root => root.uri).join(', ')}`);
        return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
    },

    async test_input_required_result_request_state(_, ctx) {
        if (acceptedContent(ctx.mcpReq.inputResponses, 'confirm') === undefined) {
            const requestState = await state.mint({ nonce: crypto.randomUUID() });
            return inputRequired({ inputRequests: { confirm: question('Please confirm', CONFIRM) }, requestState });
        }
        if (ctx.mcpReq.requestState() === undefined) {
            throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Invalid requestState: it is missing');
        }
        return text('state-ok');
    },

    async test_input_required_result_multiple_inputs(_, ctx) {
        const answers = ctx.mcpReq.inputResponses;
        const name = acceptedContent(answers, 'user_name')?.name;
        const greeting = answers?.greeting?.content?.text;
        const roots = answers?.client_roots?.roots;
        if (typeof name === 'string' && typeof greeting === 'string' && Array.isArray(roots)) {
            return text(`${greeting} ${name}, ${roots.length} roots`);
        }
        const inputRequests = {
            user_name: question('What is your name?', NAME),
            greeting: prompt('Generate a greeting'),
            client_roots: inputRequired.listRoots()
        };
        return inputRequired({ inputRequests, requestState: await state.mint({ nonce: crypto.randomUUID() }) });
    },

    async test_input_required_result_multi_round(_, ctx) {
        const { round = 0, name } = ctx.mcpReq.requestState() ?? {};
        const ask = async (key, message, properties, next) =>
            inputRequired({ inputRequests: { [key]: question(message, properties) }, requestState: await state.mint(next) });
        if (round === 0) return ask('step1', 'Step 1: What is your name?', NAME, { round: 1 });
        if (round === 1) {
            const name = acceptedContent(ctx.mcpReq.inputResponses, 'step1')?.name ?? 'unknown';
            const color = { color: { type: 'string' } };
            return ask('step2', 'Step 2: What is your favorite color?', color, { round: 2, name });
        }
        const color = acceptedContent(ctx.mcpReq.inputResponses, 'step2')?.color ?? 'unknown';
        return text(`Multi-round complete: ${name} likes ${color}`);
    },

    async test_input_required_result_tampered_state(_, ctx) {
        const confirmed = acceptedContent(ctx.mcpReq.inputResponses, 'confirm') !== undefined;
        if (confirmed && ctx.mcpReq.requestState() !== undefined) return text('integrity-ok');
        const requestState = await state.mint({ nonce: crypto.randomUUID() });
        return inputRequired({ inputRequests: { confirm: question('Please confirm', CONFIRM) }, requestState });
    },

    async test_input_required_result_capabilities(_, ctx) {
        if (ctx.mcpReq.inputResponses !== undefined) return text('fulfilled');
        const declared = ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
        const possible = {
            elicitation: { user_name: question('What is your name?', NAME) },
            sampling: { greeting: prompt('Generate a short greeting') },
            roots: { client_roots: inputRequired.listRoots() }
        };
        const able = Object.keys(possible).filter(capability => declared[capability] !== undefined);
        if (able.length === 0) return text('this client cannot be asked');
        return inputRequired({ inputRequests: Object.assign({}, ...able.map(capability => possible[capability])) });
    }
};

/** The tools that take arguments. */
const WITH_ARGUMENTS = {
    test_sampling: {
        inputSchema: z.object({ prompt: z.string() }),
        async run({ prompt }, ctx) {
            const params = { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens: 100 };
            const { content } = await ctx.mcpReq.send({ method: 'sampling/createMessage', params });
            return text(`LLM response: ${content?.text ?? 'none'}`);
        }
    },
    test_elicitation: {
        inputSchema: z.object({ message: z.string() }),
        run: ({ message }, ctx) => elicit(ctx, message, { response: { type: 'string', description: "User's response" } })
    },
    test_x_mcp_header: {
        inputSchema: fromJsonSchema({
            type: 'object',
            properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, level: { type: 'integer' } }
        }),
        run: async ({ region }) => text(`region=${region ?? 'none'}`)
    },
    json_schema_2020_12_tool: {
        inputSchema: fromJsonSchema({
            $schema: 'https://json-schema.org/draft/2020-12/schema',
            type: 'object',
            $defs: {
                address: {
                    $anchor: 'addressDef',
                    type: 'object',
                    properties: { street: { type: 'string' }, city: { type: 'string' } }
                }
            },
            properties: {
                name: { type: 'string' },
                address: { $ref: '#/$defs/address' },
                contactMethod: { type: 'string', enum: ['phone', 'email'] },
                phone: { type: 'string' },
                email: { type: 'string' }
            },
            allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
            if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
            then: { required: ['phone'] },
            else: { required: ['email'] },
            additionalProperties: false
        }),
        run: async given => text(JSON.stringify(given))
    }
};

/** How often the lists were changed, which shows in them: a change that changes nothing need not be reported. */
const changes = { tools: 0, prompts: 0 };

/** The server, for one session or one request. `changed` tells of changes, `closeStream` ends the stream of a call. */
export function createServer(way = {}) {
    const server = new McpServer(
        { name: 'skep-conformance', version: '1.0.0' },
        {
            capabilities: {
                tools: { listChanged: true },
                resources: { subscribe: true, listChanged: true },
                prompts: { listChanged: true },
                logging: {},
                completions: {}
            },
            requestState: { verify: state.verify }
        }
    );
    const describe = name => ({ description: `For the scenarios of ${name}, change ${changes.tools}` });
    for (const [name, result] of Object.entries(CONSTANT)) {
        server.registerTool(name, { ...describe(name), inputSchema: z.object({}) }, async () => result);
    }
    for (const [name, run] of Object.entries(ACTIVE)) {
        server.registerTool(name, { ...describe(name), inputSchema: z.object({}) }, (given, ctx) => run(given, ctx, way));
    }
    for (const [name, { inputSchema, run }] of Object.entries(WITH_ARGUMENTS)) {
        server.registerTool(name, { ...describe(name), inputSchema }, run);
    }
    resources(server);
    prompts(server);
    server.server.setRequestHandler('resources/subscribe', async () => ({}));
    server.server.setRequestHandler('resources/unsubscribe', async () => ({}));
    server.server.setRequestHandler('logging/setLevel', async () => ({}));
    server.server.setRequestHandler('completion/complete', async () => ({
        completion: { values: [], total: 0, hasMore: false }
    }));
    return server;
}

function resources(server) {
    const constant = (name, uri, mimeType, content) =>
        server.registerResource(name, uri, { mimeType }, async () => ({ contents: [{ uri, mimeType, ...content }] }));
    constant('static-text', 'test://static-text', 'text/plain', { text: 'This is the content of the static text resource.' });
    constant('static-binary', 'test://static-binary', 'image/png', { blob: IMAGE });
    constant('watched-resource', 'test://watched-resource', 'text/plain', { text: 'Watched resource content' });
    const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
    const mimeType = 'application/json';
    server.registerResource('template', template, { mimeType }, async (uri, { id }) => {
        const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
        return { contents: [{ uri: uri.toString(), mimeType, text }] };
    });
}

function prompts(server) {
    const user = (...contents) => ({ messages: contents.map(content => ({ role: 'user', content })) });
    const words = text => ({ type: 'text', text });
    const register = (name, argsSchema, run) => server.registerPrompt(name, { description: `For ${name}, change ${changes.prompts}`, argsSchema }, run);
    register('test_simple_prompt', undefined, async () => user(words('This is a simple prompt for testing.')));
    register('test_prompt_with_arguments', z.object({ arg1: z.string(), arg2: z.string() }), async ({ arg1, arg2 }) =>
        user(words(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))
    );
    register('test_prompt_with_embedded_resource', z.object({ resourceUri: z.string() }), async ({ resourceUri }) => {
        const resource = { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' };
        return user({ type: 'resource', resource }, words('Please process the embedded resource above.'));
    });
    register('test_prompt_with_image', undefined, async () =>
        user({ type: 'image', data: IMAGE, mimeType: 'image/png' }, words('Please analyze the image above.'))
    );
    register('test_input_required_result_prompt', undefined, async ctx => {
        const context = acceptedContent(ctx.mcpReq.inputResponses, 'user_context')?.context;
        if (typeof context === 'string') return user(words(`Use the following context: ${context}`));
        const properties = { context: { type: 'string' } };
        return inputRequired({ inputRequests: { user_context: question('What context should the prompt use?', properties) } });
    });
}
